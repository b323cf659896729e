"""What a user says of two models that are not built alike.

model           the mapping file: its fields and their meaning
files           YAML files -> plain values, or one sentence about what is wrong with them
names           what a call of the target is called on the golden side
nearest         what a name that fits nothing may have meant
rules           what it says of tensors, as plain values
composed        a value made of several recorded ones, and how to measure it
arrays          tensors put together, cut and turned
statistics      what Max, Min, Mean and Norm of the whole follow from those of the parts, and what bounds them
places          where the names of a rule lie
masks           the tensors that rules name as masks
unfit           rules that meet a value and cannot be applied to it
fused           one call of the target that does what several golden calls do
known_sums      sums that the golden run recorded elsewhere
taken_apart     calls that take a joined value apart again, of which the golden run has none
labels          which parameter a value in the optimizer's calls belongs to
optimizer       the optimizer's calls, through the rules about parameters
groups          which ranks hold together what a rank of the other side holds
shards          values that lie in parts on several ranks
applying        the rules, applied to two dumps
"""
