package sim

import "io"

// world is one that runs.
type world struct{ script Script }

func newWorld(s Script, _ io.Writer) *world { return &world{script: s} }

func (w *world) play() Result { return Result{Script: w.script, Covered: map[Cell]int{}} }
