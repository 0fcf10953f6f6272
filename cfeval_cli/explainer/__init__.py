"""Explanation methods: each names features of an input as the reason for its prediction."""
