"""What a training decides by trials before its first step: BATCH_SIZE_AUTO, COMPILE_AUTO, AMP_AUTO."""
