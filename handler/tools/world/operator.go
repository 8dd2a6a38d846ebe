package world

// act is what an operator does.
type act struct{}

// acts returns what operators do.
func (g *generator) acts(Schedule) []act { return nil }

// operate starts the operators.
func (w *World) operate() {}
