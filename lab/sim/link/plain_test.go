//go:build !race

package link

// worlds is how many there are.
const worlds = 200
