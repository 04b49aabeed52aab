"""allocsim finds out why a memory plan gives wrong numbers: plan, kernel or caller."""
