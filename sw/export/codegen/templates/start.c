    if (!status)
        status = @@{prefix}_reset(inference);
