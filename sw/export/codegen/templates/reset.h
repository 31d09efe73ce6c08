/* Give the network's variables their initial values, as @@{prefix}_init() does. Between runs they stay in shared and
 * scratch memory. Behind a run that has failed in the middle they may be those of before or after it: reset then. */
int @@{prefix}_reset(struct @@{prefix} *inference);

