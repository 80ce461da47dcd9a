//go:build race

package sim

// worlds is how many there are unless SLICEFEED_SEEDS says so: the race detector finds nothing in
// one goroutine, and takes ten times as long.
const worlds = 20
