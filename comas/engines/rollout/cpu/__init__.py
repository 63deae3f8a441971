"""What rollout engines need on a CPU: their way to new weights, and faster products of matrices."""
