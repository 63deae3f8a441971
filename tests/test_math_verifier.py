"""The strict math verifier: what is the same answer, and what is not."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from comas.verification.math import MAX_ANSWER_CHARS, verify_math

# A gold answer, and after it other spellings of it.
EQUAL = r"""
## another form of a number
\sqrt{66} ~ √66
2.5 ~ 2½
\sqrt[3]{2} ~ ∛2
\frac{3}{4} ~ \nicefrac{3}{4}
-\sqrt3 ~ \tan 120^\circ
\frac{\sqrt3}{2} ~ \sin(60°)
90 ~ \approx 90
5 ~ \underline{5} ~ \textcolor{red}{5}
6 - 7i ~ 6 - 7\mathrm{i} ~ -7i + 6
7\sqrt{3} ~ \sqrt{147} ~ \frac{21}{\sqrt3}
C - c ~ -c + C
\pi (R^2 - r^2) ~ \pi (R - r)(R + r)
S_n - s_n ~ -s_n + S_n
0.125 ~ \frac18
\frac{1}{8} ~ .125
\frac{5}{33} ~ 0.\overline{15}
\frac{5}{12} ~ 0.41\overline{6}
-\frac{14}{3} ~ \frac{-14}{3} ~ -14/3
\frac 29 ~ \dfrac{2}{9}
\frac29 ~ \tfrac 29
\frac5{12} ~ \frac{5}{12}
\frac{\pi}{3} ~ \frac\pi3
\frac{5\sqrt{2}}{6} ~ \frac{5}{6}\sqrt2
21 \frac{3}{4} ~ \frac{87}{4} ~ 21.75
21.75 ~ 21 3/4
45 \pi ~ 45\pi ~ 45π
5+3\pi ~ 3\left(\frac{5}{3}+\pi\right)
14 ~ 2(7) ~ (2)(7)
2 ~ 4\left(\frac{1}{2}\right)
20 ~ 2\binom{5}{2}
120 ~ 5!
4^{50} ~ 2^{100}
2500 ~ 2.5e3
007 ~ 7
13 ~ 13. ~ \text{13} ~ (13)
0 ~ -0
2 + \sqrt{1999} ~ \sqrt{1999}+2
\log_2 5 ~ \log_{2}(5)
-1 ~ i^2
-i ~ \frac{1}{i}
\ln 2 ~ \operatorname{ln} 2 ~ \log_e 2
\frac13 ~ 0.\bar{3} ~ 0.(3)
\pi ~ \pi \approx 3.14
21 ~ {7 \choose 2}
25 ~ \text{twenty-five} ~ \text{$25$} ~ \mathbf{\text{25}} ~ {\bf 25 .}
\frac{1}{2} ~ \cos\frac{\pi}{3}
\frac{1}{2004!} ~ \frac{2005}{2005!}
2^{-200} ~ 4^{-100} ~ 0.5^{200}
1-2^{-2006} ~ \frac{2^{2006}-1}{2^{2006}}
10^{-60}\pi ~ \frac{\pi}{10^{60}}
e^{-200} ~ \frac{1}{e^{200}}
(\sqrt2-1)^{200} ~ \frac{1}{(\sqrt2+1)^{200}}
## an expression
p - q ~ -q+p
AB - CD ~ -CD + BA
abcd ~ a \cdot b \cdot c \cdot d
\cot x ~ \operatorname{cot}x
tr ~ rt
x^2 ~ x²
4x^2 - 9 ~ (2x-3)(2x+3)
5r^2-3r-20 ~ 5r^{2} - 3r - 20
\frac{12+5c}{9} ~ \frac{5c+12}{9}
\sec x ~ \frac{1}{\cos x} ~ \sec(x)
\sin \frac{t}{2} ~ \sin(t/2)
y = 4x-1 ~ y = -1 + 4x ~ 4x-1 ~ 4x - y - 1 = 0
4x-1 ~ f(x) = 4x-1
x^2+y^2=9 ~ y^2+x^2 = 9
## thousands
10080 ~ 10,\!080 ~ 10{,}\!080
10,\!080 ~ 10,080
11111111100 ~ 11,\! 111,\! 111,\! 100
\$32,\!348 ~ 32348
8,250 ~ 8250
8250 ~ 8,250
82500 ~ 82{,}500 ~ 82\,500
1,000,000 ~ 10^6
## the name of a value
13 ~ x = 13 ~ f(2) = 13 ~ a + b = 13 ~ \frac{26}{2} = 13 ~ x = \frac{26}{2} = 13 ~ \text{Area} = 13
x = 13 ~ 13
x=13 ~ x = 13
\sqrt{3} ~ \sqrt3 \approx 1.73 ~ x = \sqrt3 \approx 1.73
## the words and signs around an answer
13 ~ \therefore 13
irrational ~ \therefore irrational ~ \therefore Irrational ~ \therefore \text{ irrational}
3 ~ \text{Answer: } 3
25 ~ \text{The answer is 25} ~ The answer is $25$ ~ \text{So the area is } 25
25 ~ 2x = 50 \implies x = 25 ~ 25 = x
12 ~ \text{(C) }12
\text{Evelyn} ~ \operatorname{Evelyn} ~ \text{The answer is Evelyn.}
k\pi ~ k\pi, k\in\mathbb{Z}
k\pi, k\in\mathbb{Z} ~ n\pi \text{ for any integer } n
\text{(C)} ~ \text{(C) }12
## a list or set
11, 4, 19 ~ 4,11,19 ~ 4, 11, and 19 ~ \{4, 11, 19\}
4, 19 ~ 4 \text{ and } 19 ~ 19 or 4 ~ x \in \{4, 19\} ~ \left\{19; 4\right\}
4, 19 ~ 4} \text{ or } \boxed{19
4, -19 ~ x = 4 \text{ or } x = -19 ~ x = 4, -19 ~ x_1 = -19, x_2 = 4
x = 4, x = -19 ~ 4, -19
2 \pm \sqrt{5} ~ 2\pm\sqrt5 ~ 2-\sqrt5, 2+\sqrt5
4, -4 ~ x = \pm 4
100, 200 ~ 100,200
a = 2, b = 5 ~ b = 5, a = 2
(1, 2), (3, 4) ~ (3,4) \text{ and } (1,2)
## a tuple, interval, vector or matrix
(15,-29) ~ x=15, y=-29 ~ y = -29 \text{ and } x = 15 ~ {(15,-29)} ~ \{(15,-29)\}
(-\infty,2)\cup(3,\infty) ~ x<2 \text{ or } x>3 ~ \{x \mid x<2 \text{ or } x>3\}
(-\infty,2)\cup(3,\infty) ~ x<2} or \boxed{x>3 ~ x \notin [2,3]
(-\infty,3)\cup(3,\infty) ~ \mathbb{R}\setminus\{3\}
[2, 8] ~ x \ge 2} and \boxed{x \le 8 ~ x \ge 2 \text{ and } x \le 8
[2, 8) ~ \{x \in \mathbb{R} : 2 \le x < 8\}
(2,12) \cup (12,102) ~ (12,102)\cup(2,12)
(2, \infty) ~ ]2,\infty[ ~ x\in]2, \infty[
(-9, 5] ~ ]-9, 5]
\begin{pmatrix}4\\-9\end{pmatrix} ~ \begin{pmatrix}4\\[4pt]-9\end{pmatrix}
\begin{pmatrix}4\\-9\end{pmatrix} ~ \left(\begin{array}{c}4\\-9\end{array}\right)
(5, -8) ~ \left(5,-8\right) ~ (x,y) = (5,-8) ~ \langle 5, -8 \rangle
(\frac{7}{2}, \pi) ~ \left(3.5,\ \pi\right)
\left[ \frac{2}{7}, 3 \right) ~ [2/7, 3) ~ x \in [2/7, 3)
(4, 9) ~ x \in (4, 9)
4 < x < 9 ~ (4, 9)
x > 4 ~ 4 < x
x \geq 4 ~ [4, \infty)
(-\infty, 1) \cup (4, \infty) ~ (4,\infty)\cup(-\infty,1)
\begin{pmatrix} 4 \\ -9 \\ 2 \end{pmatrix} ~ \begin{pmatrix}4\\-9\\2\end{pmatrix}
\begin{pmatrix} 4 & 1 \\ 0 & 2 \end{pmatrix} ~ \begin{bmatrix} 4&1\\0&2 \end{bmatrix}
## a system
(1, 2) ~ \begin{cases}x=1\\y=2\end{cases} ~ \begin{array}{l}x=1\\y=2\end{array} ~ x=1\\y=2
(1, 2) ~ \begin{aligned}x&=1\\y&=2\end{aligned} ~ \begin{align*}x&=1,\\y&=2.\end{align*}
(1, 2) ~ \begin{matrix}x=1\\y=2\end{matrix} ~ \left\{\begin{array}{l}x=1\\y=2\end{array}\right.
(1, 2) ~ \begin{array}{rcl}x&=&1\\y&=&2\end{array} ~ \begin{cases}y=2,\\[2pt]x=\frac22\\\end{cases}
\begin{cases}x=1\\y=2\end{cases} ~ (1, 2) ~ y=2 \text{ and } x=1 ~ \begin{cases}y=2\\x=1\end{cases}
\begin{array}{l}x=1\\y=2\end{array} ~ (1, 2) ~ (x, y) = (1, 2)
x=1\\y=2\\z=3 ~ (1, 2, 3) ~ \begin{gathered}x=1\\y=2\\z=3\end{gathered}
(1, 2), (3, 4) ~ \begin{cases}x=3\\y=4\end{cases} \text{ or } \begin{cases}x=1\\y=2\end{cases}
\begin{cases}x=1\\y=2\end{cases}, \begin{cases}x=3\\y=4\end{cases} ~ (3, 4), (1, 2)
b = 5, a = 2 ~ \begin{cases}a=2\\b=5\end{cases}
[2, 8] ~ \begin{cases}x\ge 2\\x\le8\end{cases}
5 ~ \begin{aligned}x&=2+3\\&=5\end{aligned}
## a union or another set
(-\infty,2)\cup(3,\infty) ~ (-\infty,2)\bigcup(3,\infty) ~ (-\infty,2)\cup{}(3,\infty)
(-\infty,2)\cup(3,\infty) ~ (-\infty,2)\text{ U }(3,\infty) ~ (-\infty,2) U (3,\infty)
(-\infty,2)\cup(3,\infty) ~ (-\infty,2){\cup}(3,\infty) ~ \mathbb{R} - [2, 3]
(-\infty,2)\cup(3,\infty) ~ ]-\infty,2[\cup]3,\infty[ ~ ]-\infty;2[ \cup ]3;+\infty[
(-\infty,2)\cup(3,\infty) ~ \R \setminus [2,3] ~ \mathbb{R}-[2,3] ~ \Reals - [2,3]
(-\infty,2)\cup(3,\infty) ~ x\in]-\infty,2[\bigcup]3,\infty[ ~ (-\infty,2)\text{ union }(3,\infty)
(-1,0]\cup(2,5] ~ ]-1,0]\cup]2,5]
(-\infty,3)\cup(3,\infty) ~ \R-\{3\} ~ x \in \R, x \ne 3
[2,3] ~ [1,3]\bigcap[2,4] ~ [1,3]\cap{}[2,4]
[2,3) ~ [2;3[
\mathbb{R} ~ \R ~ x \in \RR ~ ]-\infty,\infty[
k\pi, k\in\mathbb{Z} ~ k\pi, k\in\Z ~ k\pi, k \in \ZZ
## as in a program
e^{16} ~ exp(16) ~ \operatorname{exp}(16) ~ \text{exp}(16) ~ \exp 16 ~ e**16
2e^{3x} ~ 2*exp(3*x) ~ 2\operatorname{exp}(3x)
e^{-2} ~ exp(-2) ~ e**(-2) ~ e**-2
x^2 ~ x**2 ~ x ** 2 ~ x**{2}
\sqrt2 ~ \sqrt(2) ~ 2**(1/2) ~ \operatorname{sqrt}(2)
\sqrt{1+\sqrt2} ~ sqrt(1+sqrt(2)) ~ \sqrt(1+\sqrt(2))
\sqrt[3]{2} ~ cbrt(2) ~ 2**(1/3)
\ln 2 ~ ln 2 ~ \text{ln} 2 ~ ln{2}
\frac{\ln 2}{3} ~ (ln 2)/3 ~ \frac{ln 2}{3}
|x| ~ abs(x) ~ \abs{x} ~ \operatorname{abs}(x)
6.02\times10^{23} ~ 6.02 \times {10}^{23} ~ {6.02}{\times}{10}^{23}
## a unit, sign or base
2.5 ~ 2.5 m/s
2.5 \text{ m/s} ~ 2.5 m/s ~ 2.5\,\mathrm{m \cdot s^{-1}} ~ 2.5 \frac{\text{m}}{\text{s}}
2.5 \text{ m/s} ~ 2.5 \text{ meters per second}
5 \text{ m} ~ 5m
3 \text{ angstroms} ~ 3\AA
60 mph ~ 60 \text{ miles per hour}
9 \text{ km/h} ~ 9 kph
512 \text{ square feet} ~ 512 ft^2
15 ~ 15 apples
76 ~ 76\textdegree
76^\circ ~ 76\textdegree
18.90 ~ \text{\$}18.90 ~ 18.90 \text{ USD}
24 ~ 2 \text{ dozen}
12 \text{ pairs} ~ 12\text{ pairs}
4210_5 ~ 4210\text{ base }5 ~ (4210)_5
70^\circ ~ 70 ~ 70 \text{ degrees}
70 ~ 70^{\circ}
\$31.40 ~ 31.40 ~ 31.40 \text{ dollars}
31.40 ~ \$31.4
512 \mbox{ feet}^3 ~ 512 \text{ cubic foot} ~ 512 ~ 512 \text{ ft}^{3} ~ 512 \text{ cubic feet}
512 ~ 512\,\mathrm{cm}^3 ~ 512 cm^3 ~ 512 \text{ apples}
12\pi \text{ cm} ~ 12\pi
35 ~ 35\%
35\% ~ 35 ~ \frac{7}{20} ~ 35 \text{ percent}
0.35 ~ 35\%
7000000 ~ 7 \text{ million}
2134_6 ~ 2134_{6} ~ 2134
2134_8 ~ 2134_{\text{eight}}
3:4 ~ 3 : 4 ~ 3 \text{ to } 4 ~ 3{:}4
4:40 \text{ p.m.} ~ 4:40 PM
## words
\text{north} ~ north ~ \textbf{North}
north ~ \text{north}
\text{Tuesday} ~ \mathrm{tuesday}
\text{(B)} ~ B ~ \textbf{(B)}
\text{no real roots} ~ \text{No real roots.}
yes ~ \text{Yes}
no ~ No
Odd ~ \text{odd.}
\text{June 20} ~ June \text{20}
2 \text{ hours } 30 \text{ minutes} ~ \text{2 hours 30 minutes}
"""
# A gold answer, and after it what is another.
UNEQUAL = r"""
## another short word
yes ~ No
no ~ \text{yes}
odd ~ do d
No ~ 9
## another number
10080 ~ 10,80
10,080 ~ 10,80
\frac{2}{7} ~ 9^{9^{9^9}} ~ 10^{-10^{10^{10}}}
5 ~ (10^{10})! ~ 5 \text{ million} ~ 5 million ~ 5 \text{ or more}
13 ~ -13 ~ 31 ~ 13.5
7\sqrt{3} ~ 7 ~ 3\sqrt{7}
45 \pi ~ 45 ~ 90\pi ~ 45\pi^2
5+3\pi ~ 8\pi
\frac 29 ~ 29
\frac29 ~ \frac92
\frac{1}{23} ~ \frac{12}{3}
12 ~ 1 2
2^{12} ~ 2^{1}2
\frac{1}{3} ~ 0.33 ~ 0.333333333333
\sqrt{3} ~ 1.7320508
\pi ~ 3.14159265358979
0.0000001 ~ 0.0000002
10^{-20}\pi ~ 2 \cdot 10^{-20}\pi
10^{30} ~ 10^{30}+1
## a number that is close to it
\frac{1}{2004!} ~ \frac{1}{2006!} ~ \frac{\pi}{2004!}
2^{-200} ~ 2^{-201} ~ 0 ~ 0.5^{201}
1-2^{-2006} ~ 1-2^{-2005} ~ 1
10^{-60}\pi ~ 10^{-61}\pi
\sqrt2 + 10^{-60} ~ \sqrt2 + 10^{-61} ~ \sqrt2
e^{-200} ~ e^{-201}
e^{-e^{8}} ~ e^{-e^{7}}
(\sqrt2-1)^{200} ~ (\sqrt2-1)^{201}
\frac{1}{\sinh 300} ~ \frac{1}{\sinh 301}
\frac{1}{\binom{400}{200}} ~ \frac{1}{\binom{402}{200}}
\sum_{k=1}^{300} \frac{1}{k!} ~ \sum_{k=1}^{299} \frac{1}{k!}
\prod_{k=1}^{200} \frac1k ~ \prod_{k=1}^{201} \frac1k
\log(1+10^{-70}) ~ \log(1+10^{-71})
10^{-60}\% ~ 10^{-61}\%
10^{-60} \text{ m} ~ 10^{-61} \text{ m}
10^{-60}i + 1 ~ 10^{-61}i + 1
10^{-60}x^2 ~ 10^{-61}x^2
x^2+y^2=10^{-60} ~ x^2+y^2=10^{-61}
x > 10^{-60} ~ x > 10^{-61}
10^{-60}, 1 ~ 10^{-61}, 1
(10^{-60},1) ~ (10^{-61},1)
[10^{-60},1] ~ [10^{-61},1]
(-\infty, 10^{-60}) \cup (1, \infty) ~ (-\infty, 10^{-61}) \cup (1, \infty)
\begin{pmatrix}10^{-60}\\1\end{pmatrix} ~ \begin{pmatrix}10^{-61}\\1\end{pmatrix}
21 \frac{3}{4} ~ 21
12102 ~ (12,102)
3125 ~ (3,125)
58,500 ~ 58, 500 ~ 58 \text{ and } 500
9 ~ 2(7) ~ 2 7 ~ (2)(7)
8,250 ~ 250 ~ 8
6 - 7i ~ 6 ~ 6 + 7i ~ 6 - 7j
2 ~ \frac{1}{0}
0 ~ \text{not }0 ~ \text{more than }0 ~ \text{at least }0 ~ \text{No, not }0
25 ~ 25\text{ dozen} ~ 25\text{ pairs} ~ 25\text{ k} ~ 25\text{ squared} ~ 25\text{ or so}
25 ~ \text{The answer is not }25 ~ \text{Half of the answer is }25 ~ x^2 = 25
25 ~ x = 25 \implies x = 26
\emptyset ~ \{\emptyset\} ~ \{\{\}\}
k\pi ~ k\pi, k\in\mathbb{R}
## another expression
p - q ~ p q ~ q - p
AB - CD ~ AB CD
ABC ~ ACB
\angle ABC ~ \angle ACB
abcd ~ ABCD
2 ~ 2ab
4x^2 - 9 ~ 4x^2 + 9 ~ 4y^2 - 9 ~ 4X^2 - 9
C - c ~ c - c ~ c - C ~ w - c
\pi R^2 - \pi r^2 ~ \pi r^2 - \pi R^2
S_n - s_n ~ s_n - S_n
\sec x ~ \csc x ~ \sec t
5 ~ 5x ~ 5m ~ 2x = 5
5h ~ 5
x ~ x'
x = 5 ~ y = 5
y = 4x-1 ~ z = 4x-1 ~ y = 4x+1
x^2+y^2=9 ~ 9
## another list
3,5 ~ 3<x<5 ~ \{x \mid 3<x<5\}
11, 4, 19 ~ 11, 4 ~ 11, 4, 19, 2 ~ (11, 4, 19)
13 ~ 13, 14 ~ 13 \text{ or } 14 ~ 13} or \boxed{14 ~ 13 \pm 1
2, 2, 5 ~ 2, 5
2 \pm \sqrt{5} ~ 2 + \sqrt{5}
a = 2, b = 5 ~ a = 5, b = 2 ~ 2, 5
## another tuple, interval, vector or matrix
3 < x < 5 ~ 3, 5
(1,2) ~ 1<x<2
(2,12) \cup (12,102) ~ (2,12) ~ 5
(-\infty,2) \cup (3,\infty) ~ (-\infty,2)\cup(3,\infty)} or \boxed{(4,\infty)
x \le 2 ~ x \le 2}, \boxed{x \le 3
5 ~ x \notin [2,3]
(3, 5) ~ \{3, 5\}
(15,-29) ~ x=-29, y=15
(-\infty,2)\cup(3,\infty) ~ x<2 \text{ or } x \ge 3
x<2 ~ y<2
(5, -8) ~ (-8, 5) ~ 5 ~ 5, -8 ~ \{5, -8\} ~ (5, -8, 0)
(2, 8) ~ [2, 8]
\left[ \frac{2}{7}, 3 \right) ~ \left[ \frac{2}{7}, 3 \right] ~ \left( \frac{2}{7}, 3 \right)
\left[ \frac{2}{7}, 3 \right) ~ \left[ 3, \frac{2}{7} \right)
(4, 9) ~ 4 \le x < 9
x > 4 ~ x \ge 4
(-\infty, 1) \cup (4, \infty) ~ (-\infty, 1] \cup (4, \infty) ~ (-\infty, 1)
\begin{pmatrix} 4 \\ -9 \\ 2 \end{pmatrix} ~ 2 ~ \begin{pmatrix} 4 \\ -9 \end{pmatrix}
\begin{pmatrix} 4 \\ -9 \\ 2 \end{pmatrix} ~ \begin{pmatrix} 2 \\ -9 \\ 4 \end{pmatrix}
## another system
(1, 2) ~ \begin{cases}x=2\\y=1\end{cases} ~ \begin{cases}x=1\\x=2\end{cases} ~ x=2\\y=1
(1, 2) ~ \begin{cases}x=1\\y=2\\z=3\end{cases} ~ 1\\2 ~ \begin{pmatrix}1\\2\end{pmatrix}
(1, 2) ~ \begin{cases}1 & x=0\\2 & x=1\end{cases} ~ \begin{cases}x=1\end{cases}
\begin{cases}x=1\\y=2\end{cases} ~ (2,1) ~ 1 ~ 1,2 ~ x=1 ~ \{1,2\}
\begin{cases}x=1\\y=2\end{cases} ~ \begin{cases}x=1\\z=2\end{cases} ~ x=1, z=2
x = 1, y = 2 ~ x = 1, z = 2
\begin{pmatrix}1\\2\end{pmatrix} ~ \begin{cases}x=1\\y=2\end{cases}
(1, 2), (3, 4) ~ \begin{cases}x=1\\y=2\end{cases}
(1, 2), (3, 4) ~ \begin{cases}x=1\\y=2\end{cases}, \begin{cases}x=4\\y=3\end{cases}
x=1, x=2 ~ \begin{cases}x=1\\y=2\end{cases}
## another union or set
(-\infty,2)\cup(3,\infty) ~ (-\infty,2]\bigcup(3,\infty) ~ \mathbb{R}-(2,3) ~ \R-[2,4] ~ \R
(-\infty,2)\cup(3,\infty) ~ ]-\infty,2]\cup]3,\infty[ ~ ]-\infty,2[\cup[3,\infty[
(-\infty,2)\cup(3,\infty) ~ (-\infty,2)\bigcap(3,\infty)
(1,2)\cup(3,4) ~ (1,2)\text{ U }(3,5) ~ (1,2) U (3,4]
\mathbb{R} ~ \Z ~ \R-\{3\}
## another expression of a program
e^{16} ~ exp(15) ~ exp(1)6 ~ \exp(-16) ~ 16
e^x+1 ~ exp(x+1)
x^2 ~ x*2 ~ x**3
x^{12} ~ x**1 2
\sqrt{x}+1 ~ \sqrt(x+1)
\sqrt{x+1} ~ \sqrt(x)+1
\ln 2 ~ ln 3 ~ 2
## another unit or base
2.5 \text{ m/s} ~ 2.5 km/h ~ 2.5 \text{ m}
3 \text{ km} ~ 3000 \text{ m}
4210_5 ~ 4210 \text{ base six}
20 ^\circ\text{C} ~ 20 \text{ K}
512 \text{ square feet} ~ 512 ft^3
512 \mbox{ feet}^3 ~ 512 \text{ inches}^3 ~ 512 \text{ feet}^2 ~ 513
70^\circ ~ 70 \text{ radians} ~ 7
\$31.40 ~ 31.40 \text{ cents} ~ 31
5\text{ cm} ~ 5\%
4:40 \text{ p.m.} ~ 4:40 AM
35 ~ 0.35
35\% ~ 3.5\%
2134_6 ~ 2134_7 ~ 2135_6
3:4 ~ 4:3
3:4:5 ~ 3:5:4
## other words
\text{north} ~ \text{south} ~ thorn ~ n
north ~ thorn
\text{(B)} ~ (C)
\text{June 20} ~ \text{June 2} ~ 20
5 ~ \text{north}
"""


def cases(table):
    """A parameter for each spelling of the table, and those of its golds that differ."""
    params, golds, group = [], {}, ""
    for line in table.strip().splitlines():
        if line.startswith("## "):
            group = line.removeprefix("## ")
            continue
        gold, *answers = line.split(" ~ ")
        golds[gold] = None
        params += [pytest.param(gold, a, id=f"{group}: {a} for {gold}") for a in answers]
    return params, list(golds)


SAME, GOLDS = cases(EQUAL)
OTHER, _ = cases(UNEQUAL)


IN_UNICODE = [("25", "\u200b2\u200b5"), ("[1,2)\\cup(3,4)", "[1,2)\u22c3(3,4)")]


@pytest.mark.parametrize(("gold", "answer"), [*SAME, ("25", "25\\ "), *IN_UNICODE])
def test_the_same_answer_in_another_form_is_correct(gold, answer):
    assert verify_math(rf"So it is \boxed{{{answer}}}.", gold) == "correct"


@pytest.mark.parametrize(("gold", "answer"), OTHER)
def test_another_answer_is_wrong(gold, answer):
    assert verify_math(rf"\boxed{{{answer}}}", gold) == "wrong"


@pytest.mark.parametrize("gold", GOLDS)
def test_a_gold_can_be_read_and_is_its_own_answer(gold):
    assert verify_math(rf"\boxed{{{gold}}}", gold) == "correct"
    assert verify_math("I give up.", gold) == "unanswered"


@pytest.mark.parametrize(
    ("response", "verdict"),
    [
        *((text, "unanswered") for text in ("It is 13.", r"\boxed{}", r"\boxed{13")),
        *(
            (rf"\boxed{{{text}}}", "wrong")
            for text in ("13 &", r"\frac{13}", "13)", "13 = ", "???", r"\{13", "1.3.1")
        ),
        (r"\boxed{" + "1+" * MAX_ANSWER_CHARS + "1}", "wrong"),
    ],
)
def test_without_a_box_it_is_unanswered_and_a_box_that_cannot_be_read_is_wrong(response, verdict):
    with ThreadPoolExecutor() as other_thread:  # as of a verifier's caller
        assert other_thread.submit(verify_math, response, "13").result() == verdict


@pytest.mark.parametrize("gold", [r"\heartsuit \& 13", r"(1, \& 13)", r"2, \& 13"])
def test_a_gold_that_cannot_be_read_is_an_error_unless_it_is_repeated(gold):
    assert verify_math(rf"\boxed{{{gold}}}", gold) == "correct"
    with pytest.raises(ValueError, match=r"gold answer .* cannot be read as math"):
        verify_math("I give up.", gold)
    for empty in ("", " ", ".", ","):
        with pytest.raises(ValueError, match="cannot be read as math"):
            verify_math(r"\boxed{,}", empty)


def test_what_is_too_large_to_compute_is_wrong_within_a_second():
    started = time.process_time()
    assert verify_math(r"\boxed{9^{9^{9^9}}}", "5") == "wrong"
    assert verify_math(r"\boxed{x < 9^{9^{9^9}}}", r"[0, \infty)") == "wrong"
    assert time.process_time() - started < 1
