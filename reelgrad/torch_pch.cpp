// Carries the precompiled header torch_pch.h.
