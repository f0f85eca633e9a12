// All kernels, as NVRTC compiles them.
#pragma once
#include "gru_backward.h"
#include "gru_forward.h"
#include "lstm_backward.h"
#include "lstm_forward.h"
