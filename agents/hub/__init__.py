"""Learned policies and recorded runs on the Hugging Face Hub, or in a folder with the same files.

A learned policy is a repository for a model, and recorded runs are a repository for a data set. What a repository holds
is built in a folder first, so that everything but the transfer works without a network.
"""
