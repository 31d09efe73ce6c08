int @@{prefix}_reset(struct @@{prefix} *inference)
{
@@statements
    return status;
}

