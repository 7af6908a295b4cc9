"""The daemon: what is due, in which order, and the loop that has it done."""
