"""The cost and the exactness of usage that workers share."""
