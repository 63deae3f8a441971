"""Training: DeepSpeed is imported in this package and nowhere else."""
