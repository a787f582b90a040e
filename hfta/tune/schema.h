#pragma once

#include "hfta/tune/sqlite.h"

// Optuna's tables. For sources only.
namespace hfta::tune {

inline constexpr int kSchemaVersion = 12;                  ///< Optuna's `SCHEMA_VERSION`.
inline constexpr auto kAlembicRevision = "v3.2.0.a";       ///< Optuna 3.2 to 5.

/// Makes the tables in an empty file and leaves any other as it is. Several processes may do so at once.
void create_schema(Database& database);
/// @throws Error unless the file holds an Optuna study of this schema.
void check_schema(Database& database);

}  // namespace hfta::tune
