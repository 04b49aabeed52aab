"""Real bugs as scenarios, each with the verdict it must get."""
