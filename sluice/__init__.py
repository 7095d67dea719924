"""What is stable for users of Sluice as a library; every other package may change with any release."""
