//go:build race

package link

// worlds is how many there are: with the race detector each takes several times as long.
const worlds = 60
