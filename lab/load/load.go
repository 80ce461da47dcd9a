// Package load runs the inventory's own program with thousands of nodes and a crowd of subscribers. It measures what a
// subscriber costs, and what an attacker costs the others, as ratios within one run, since times by themselves say more
// about the machine. Subscribers use no code of ours except the generated contract, and all addresses are loopback in a
// namespace of its own.
package load

// clients are the names that subscribers have: several share one, as many as one may have.
const clients = 200

// The names of clients that are no subscribers of a crowd.
const (
	visitor  = "visitor.example"
	sleeper  = "sleeper.example"
	attacker = "attacker.example"
)
