// For the headers whose classes and functions libreelgrad.so exports (engine/exports.map lists them).
#pragma once

#define REELGRAD_API __attribute__((visibility("default")))
