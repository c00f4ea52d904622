"""Where Horovod's scripts import exceptions and the base of states from."""
