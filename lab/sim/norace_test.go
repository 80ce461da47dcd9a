//go:build !race

package sim

// worlds is how many there are unless SLICEFEED_SEEDS says so.
const worlds = 2000
