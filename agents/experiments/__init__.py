"""Many runs as data: a grid of them, how they are spread over processes and machines, and which are done."""
