// As ggml.h here.
#pragma once
#include "ggml-backend.h"
