"""The stable interface for users of Sluice as a library; all other packages may change with any release."""
