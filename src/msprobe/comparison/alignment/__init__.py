"""Which call of the target is which call of the golden dump, where the names alone do not tell.

side            one dump as a tree of calls: parents, paths, inputs
meaning         operators and functions that compute the same
sequence        two sequences of calls -> pairs; knows nothing of modules
siblings        the calls inside one module, and the same module of the other side
numbered        layers of which one was added: told apart by their parameters
reordered       calls of one kind that ran in another order
recomputed      calls that a backward pass ran once more
partners        the whole: forward calls, then backward calls and gradients by their forward
places          which value of a call is which value of its partner
notes           what the reader should know of it
"""
