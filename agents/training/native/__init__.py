"""The native engine: the arithmetic of a stage in C++, built by the compiler of this machine at its first use."""
