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
			Harm:   "A removal leaves the digest unchanged: readers restart forever.",
			File:   inDeltaset + "/deltaset.go",
			Edits:  one("existed: true, xor: old})", "existed: true, xor: Digest{0 & old[0]}})"),
			Suites: []string{inDeltaset},
		},
		{
			Name:   "resume-forgets-deletes",
			Harm:   "A resume omits removals: deleted nodes stay at every writer that reconnects.",
			File:   inDeltaset + "/deltaset.go",
			Edits:  one("removed = append(removed, c.key)", "_ = removed"),
			Suites: []string{inDeltaset},
		},
		{
			Name:   "resume-by-cursor-alone",
			Harm:   "A resume ignores the digest: a wrong set is never repaired.",
			File:   inDeltaset + "/deltaset.go",
			Edits:  one("return digest == p.Digest", "return true"),
			Suites: []string{inDeltaset},
		},
		{
			Name:   "window-too-long",
			Harm:   "A reader one change behind the window resumes from an overwritten change.",
			File:   inDeltaset + "/deltaset.go",
			Edits:  one("s.revision-p.Revision > s.window", "s.revision-p.Revision > s.window+1"),
			Suites: []string{inDeltaset},
		},
		{
			Name:   "no-heartbeat",
			Harm:   "A stream at rest is silent: every writer takes its inventory for dead.",
			File:   inStream + "/stream.go",
			Edits:  one("\t\t\theartbeatDue = true", "\t\t\theartbeatDue = false"),
			Suites: []string{inStream, "services/inventory/nodeserver"},
		},
		{
			Name:   "allowed-list-not-re-read",
			Harm:   "The client list is read at the start only: a removed client keeps its access.",
			File:   inClientlist + "/clientlist.go",
			Edits:  one("if l.text != nil && bytes.Equal(text, l.text) {", "if l.text != nil || bytes.Equal(text, l.text) {"),
			Suites: []string{inLink},
		},
		{
			Name:   "withdrawn-grant-of-a-service-kept",
			Harm:   "A client whose entry loses an exported Service keeps the stream of it.",
			File:   inClientlist + "/clientlist.go",
			Edits:  one(" && slices.Equal(g.Services, o.Services)", ""),
			Suites: []string{inClientlist},
		},
		{
			Name:   "revoked-stream-lives-on",
			Harm:   "The streams of a removed client go on.",
			File:   inClientlist + "/clientlist.go",
			Edits:  one("\t\t\told.cancel()\n", "\t\t\tcontinue\n"),
			Suites: []string{inLink},
		},
		{
			Name: "subscribers-may-ask-as-operators",
			Harm: "Subscribers may read cloud identifiers and omitted nodes.",
			File: inLink + "/authorize.go",
			Edits: one(
				"if g.Role != clientlist.RoleOperator && !a.subscriberServices[service] {",
				"if g.Role == \"\" && !a.subscriberServices[service] {",
			),
			Suites: []string{inLink},
		},
		{
			Name:   "any-san-will-do",
			Harm:   "Any certificate of the CA passes for the inventory.",
			File:   inIdentity + "/credentials.go",
			Edits:  one("if !slices.Contains(certificate.Names(leaf), server) {", "if len(certificate.Names(leaf)) == 0 {"),
			Suites: []string{inLink},
		},
		{
			Name:   "any-key-usage-will-do",
			Harm:   "A client's certificate can serve.",
			File:   inIdentity + "/credentials.go",
			Edits:  one("if !slices.Contains(leaf.ExtKeyUsage, usage) {", "if leaf == nil {"),
			Suites: []string{inLink},
		},
		{
			Name: "unlisted-client-speaks-http2",
			Harm: "An unlisted client gets past the handshake and starves others by rapid resets.",
			File: inLink + "/handshaker.go",
			Edits: one(
				"_, listed := clients.Find(certificate.Names(client)); !listed {",
				"_, listed := clients.Find(certificate.Names(client)); !listed && clients == nil {",
			),
			Suites: []string{inLink},
		},
		{
			Name:   "no-budget-of-bytes",
			Harm:   "A stolen credential resets streams at full speed and starves other clients.",
			File:   inLink + "/handshaker.go",
			Edits:  one("\tmetered.usage = c.usage\n", ""),
			Suites: []string{inLink},
		},
		{
			Name: "forged-chain-is-verified",
			Harm: "A peer makes us verify certificates with keys of its choice, 32 ms of CPU each.",
			File: "services/internal/certificate/chain.go",
			Edits: one(
				"issuers, unsigned := slices.Clone(roots), slices.Clone(chain)",
				"issuers, unsigned := append(slices.Clone(roots), chain...), slices.Clone(chain)",
			),
			Suites: []string{inLink},
		},
		{
			Name:   "handshake-without-an-end",
			Harm:   "A thousand unfinished handshakes of 250 KB each fill the memory.",
			File:   inLink + "/connection.go",
			Edits:  one("c.handshakeBytes > maxHandshakeBytes", "c.handshakeBytes < 0"),
			Suites: []string{inLink},
		},
		{
			Name:   "flood-displaces-the-distant",
			Harm:   "A flood from one address closes the handshakes of all others.",
			File:   "services/internal/eviction/eviction.go",
			Edits:  one("if n := items.Len(); n > maxItems ||", "if n := 1; n > maxItems ||"),
			Suites: []string{"services/internal/eviction", inLink},
		},
	}
}
