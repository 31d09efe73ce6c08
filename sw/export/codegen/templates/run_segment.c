
static int run_segment(struct @@{prefix} *inference, uint32_t program, uint32_t pages)
{
    int status = dovetail_start(&inference->device, &inference->memory, program, pages);
    if (!status)
        status = dovetail_wait(&inference->device, inference->timeout, &inference->result);
    if (!status)
        inference->cycles += inference->result.cycles;
    return status;
}
