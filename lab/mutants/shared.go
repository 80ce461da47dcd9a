package mutants

const (
	inDeltaset   = "services/internal/deltaset"
	inStream     = "services/internal/stream"
	inLink       = "services/internal/link"
	inIdentity   = "services/internal/identity"
	inClientlist = "services/internal/clientlist"
)

// shared are the bugs in what both halves share.
func shared() []Mutant {
	return []Mutant{
		{
			Name:   "digest-skips-removals",
			Harm:   "A removal leaves the digest as it was, so readers start over for ever, and a missed delete would pass unseen.",
			File:   inDeltaset + "/deltaset.go",
			Edits:  one("existed: true, xor: old})", "existed: true, xor: Digest{0 & old[0]}})"),
			Suites: []string{inDeltaset},
		},
		{
			Name:   "resume-forgets-deletes",
			Harm:   "Who resumes is told what is new and not what is gone: a deleted node stays in the slices of every writer that reconnects.",
			File:   inDeltaset + "/deltaset.go",
			Edits:  one("removed = append(removed, c.key)", "_ = removed"),
			Suites: []string{inDeltaset},
		},
		{
			Name:   "resume-by-cursor-alone",
			Harm:   "A resume is answered by the cursor whatever set the reader holds, so a set that went wrong is never mended.",
			File:   inDeltaset + "/deltaset.go",
			Edits:  one("return digest == p.Digest", "return true"),
			Suites: []string{inDeltaset},
		},
		{
			Name:   "window-too-long",
			Harm:   "A reader one change behind the window resumes by a change that is overwritten, and is told to remove a node that it never had.",
			File:   inDeltaset + "/deltaset.go",
			Edits:  one("s.revision-p.Revision > uint64(len(s.recent))", "s.revision-p.Revision > uint64(len(s.recent))+1"),
			Suites: []string{inDeltaset},
		},
		{
			Name:   "no-heartbeat",
			Harm:   "A stream at rest says nothing, so every writer takes its inventory for dead after three intervals and holds all it has.",
			File:   inStream + "/stream.go",
			Edits:  one("\t\t\theartbeatDue = true", "\t\t\theartbeatDue = false"),
			Suites: []string{inStream, "services/inventory/nodeserver"},
		},
		{
			Name:   "allowed-list-not-re-read",
			Harm:   "ALLOWED_CLIENTS_FILE is read at start alone: a client that was struck off keeps its access until the next restart.",
			File:   inClientlist + "/clientlist.go",
			Edits:  one("if l.text != nil && bytes.Equal(text, l.text) {", "if l.text != nil || bytes.Equal(text, l.text) {"),
			Suites: []string{inLink},
		},
		{
			Name:   "revoked-stream-lives-on",
			Harm:   "A client that was struck off is refused new calls, but the stream that it has goes on telling it everything.",
			File:   inClientlist + "/clientlist.go",
			Edits:  one("\t\t\told.cancel()\n", "\t\t\tcontinue\n"),
			Suites: []string{inLink},
		},
		{
			Name:   "subscribers-may-ask-as-operators",
			Harm:   "Each writer may read the cloud identifiers and the omitted nodes, which only operators may see.",
			File:   inLink + "/authorize.go",
			Edits:  one("if g.Role != clientlist.RoleOperator && !a.subscriberServices[service] {", "if g.Role == \"\" && !a.subscriberServices[service] {"),
			Suites: []string{inLink},
		},
		{
			Name:   "any-san-will-do",
			Harm:   "Whoever has a certificate of the CA can pose as the inventory, since its name is not compared with INVENTORY_SAN.",
			File:   inIdentity + "/credentials.go",
			Edits:  one("if !slices.Contains(certificate.Names(leaf), server) {", "if len(certificate.Names(leaf)) == 0 {"),
			Suites: []string{inLink},
		},
		{
			Name:   "any-key-usage-will-do",
			Harm:   "A certificate without an extended key usage passes for either end, so a client's certificate can serve.",
			File:   inIdentity + "/credentials.go",
			Edits:  one("if !slices.Contains(leaf.ExtKeyUsage, usage) {", "if leaf == nil {"),
			Suites: []string{inLink},
		},
		{
			Name:   "unlisted-client-speaks-http2",
			Harm:   "Whoever has a certificate of the right CA gets past the handshake, and starves listed clients by rapid resets.",
			File:   inLink + "/handshaker.go",
			Edits:  one("_, listed := clients.Find(certificate.Names(client)); !listed {", "_, listed := clients.Find(certificate.Names(client)); !listed && clients == nil {"),
			Suites: []string{inLink},
		},
		{
			Name:   "no-budget-of-bytes",
			Harm:   "A stolen credential resets streams as fast as the network carries them, and starves all other clients.",
			File:   inLink + "/handshaker.go",
			Edits:  one("\tmetered.usage = c.usage\n", ""),
			Suites: []string{inLink},
		},
		{
			Name:   "forged-chain-is-verified",
			Harm:   "Whoever can reach the port has certificates of its own making verified with keys of its choice, for 32 ms of a processor each time.",
			File:   "services/internal/certificate/chain.go",
			Edits:  one("issuers, unsigned := slices.Clone(roots), slices.Clone(chain)", "issuers, unsigned := append(slices.Clone(roots), chain...), slices.Clone(chain)"),
			Suites: []string{inLink},
		},
		{
			Name:   "handshake-without-an-end",
			Harm:   "A thousand unfinished handshakes of 250 KB each take the inventory's whole memory, before anybody is known.",
			File:   inLink + "/connection.go",
			Edits:  one("c.handshakeBytes > maxHandshakeBytes", "c.handshakeBytes < 0"),
			Suites: []string{inLink},
		},
		{
			Name:   "flood-displaces-the-distant",
			Harm:   "A flood of handshakes from one address cuts off those of all others, the farthest first.",
			File:   "services/internal/eviction/eviction.go",
			Edits:  one("if n := items.Len(); n > maxItems ||", "if n := 1; n > maxItems ||"),
			Suites: []string{"services/internal/eviction", inLink},
		},
	}
}
