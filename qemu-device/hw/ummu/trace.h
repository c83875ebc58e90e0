#include "trace/trace-hw_ummu.h"
