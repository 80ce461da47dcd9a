// Package load has the inventory's own program with thousands of nodes, and a crowd of
// subscribers. It promises figures that say what a subscriber costs and what an attacker costs
// the others, as ratios within one run, since times by themselves say more about the machine;
// it refuses to use any code of ours at the subscribers' end but the generated contract, and
// any address but loopback in a namespace of its own.
package load

// clients are the names that subscribers have: several share one, as many as one may have.
const clients = 200

// The names of clients that are no subscribers of a crowd.
const (
	visitor  = "visitor.example"
	sleeper  = "sleeper.example"
	attacker = "attacker.example"
)
