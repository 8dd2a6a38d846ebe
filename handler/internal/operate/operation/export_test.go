package operation

// ReadRecords is readRecords, for a fuzz test.
var ReadRecords = readRecords
