"""Deciding one workload after the other, victims in turn: the other way of search beside the best set.

`search.py` beside this package weighs sets of victims; here victims are popped one by one from an order, each try
places everything anew, and the first try that is lawful is taken. Which of the two runs is a setting of the policy.
The state (`World`), the nodes (`Rooms`) and the requests (`Demand`) are the same for both.
"""
