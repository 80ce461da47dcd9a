package mutants

const (
	inRoster     = "services/inventory/roster"
	inResolve    = "services/inventory/resolve"
	inAssign     = "services/inventory/assign"
	inObserve    = "services/inventory/observe"
	inFeed       = "services/inventory/feed"
	inKubeNodes  = "services/inventory/kubenodes"
	inKubeWatch  = "services/inventory/kubewatch"
	inIONOS      = "services/inventory/ionos"
	inNodeServer = "services/inventory/nodeserver"
	inRecords    = "services/inventory/records"
)

// inventory are the bugs in the inventory.
func inventory() []Mutant {
	return []Mutant{
		{
			Name:   "cordon-drains",
			Harm:   "A cordon drains the node though CORDONED is keep: kubectl cordon on all nodes takes the Service down.",
			File:   inKubeNodes + "/evaluate.go",
			Edits:  one("s.signals.scaleDownTaint || s.signals.cordoned && rules.Cordoned == DrainCordoned\n", "s.signals.scaleDownTaint || s.signals.cordoned\n"),
			Suites: []string{inKubeNodes},
		},
		{
			Name:   "full-look-compares-nothing",
			Harm:   "A full look finds every set equal to the API server's, so a watch that has missed a delete is believed for ever.",
			File:   inKubeWatch + "/verify.go",
			Edits:  one("if !t.confirms(name, listed, rv) {", "if t.confirms(name, listed, rv) && name == \"\" {"),
			Suites: []string{inKubeWatch},
		},
		{
			Name:   "torn-listing-accepted",
			Harm:   "A server that is deleted between two pages shifts another one out of the listing, and its node is taken for unresolved.",
			File:   inIONOS + "/pages.go",
			Edits:  one("if len(servers) == 0 || servers[0].ID != all[len(all)-1].ID {", "if len(servers) == 0 {"),
			Suites: []string{inIONOS},
		},
		{
			Name:   "echoed-limit-ignored",
			Harm:   "The cloud caps its pages below what was asked for and gives no link: the first page passes for the whole listing.",
			File:   inIONOS + "/pages.go",
			Edits:  one("\treturn limit, nil\n", "\treturn requested, nil\n"),
			Suites: []string{inIONOS},
		},
		{
			Name:   "retry-after-cut",
			Harm:   "Retry-After is cut to 30 s, as the SDK would cut it to 2 s: the cloud throttles for longer and at last bans the token.",
			File:   inIONOS + "/errors.go",
			Edits:  one("maxRetryAfter = 24 * time.Hour", "maxRetryAfter = 30 * time.Second"),
			Suites: []string{inIONOS},
		},
		{
			Name:   "bad-record-removes",
			Harm:   "A record that cannot be read takes its node out, so a slip in the inventory file empties the Service.",
			File:   inRoster + "/roster.go",
			Edits:  one("\t\tknown = m.Candidate\n", "\t\tknown.UID = m.UID\n"),
			Suites: []string{inRoster},
		},
		{
			Name:   "nameless-records-remove",
			Harm:   "A record that has lost its name counts as a node that is gone.",
			File:   inRecords + "/changes.go",
			Edits:  one("\t\tif nameless > 0 {", "\t\tif nameless > 1 {"),
			Suites: []string{inRecords},
		},
		{
			Name:   "successor-inherits",
			Harm:   "A Node that is made anew under the same name inherits the address of the machine before it.",
			File:   inRoster + "/roster.go",
			Edits:  one("m != nil && m.UID != c.UID {", "m != nil && m.UID == \"\" {"),
			Suites: []string{inRoster},
		},
		{
			Name: "address-not-sticky",
			Harm: "An answer of the cloud without an address takes it from a node that works: a bug of theirs is an outage of ours.",
			File: inAssign + "/assign.go",
			Edits: one("\t\tif !address.IsValid() || address == c.assigned[family] {\n", "\t\tif old := c.assigned[family]; !address.IsValid() && old.IsValid() {\n\t\t\tdelete(a.owners, old)\n"+
				"\t\t\tc.assigned[family] = netip.Addr{}\n\t\t}\n\t\tif !address.IsValid() || address == c.assigned[family] {\n"),
			Suites: []string{inRoster},
			Seeds:  200,
		},
		{
			Name:   "shared-message-without-its-start",
			Harm:   "A client that resumes at revision 0 is sent the message of one that is up to date: synced, with nodes that it never got.",
			File:   inNodeServer + "/watch.go",
			Edits:  one("k.change, k.fromRevision = deltaChange, r.from.Revision\n", "k.fromRevision = r.from.Revision\n"),
			Suites: []string{inNodeServer},
		},
		{
			Name:   "unspecified-address-published",
			Harm:   "A server whose NIC reports 0.0.0.0 is published, which writers take for a violation: no node of the source is served.",
			File:   inResolve + "/address.go",
			Edits:  one("return a.IsGlobalUnicast()", "return a.IsValid()"),
			Suites: []string{inNodeServer},
		},
		{
			Name:   "observations-too-close",
			Harm:   "A file that is read each second confirms what it says in three seconds: one bad write of it empties the Service.",
			File:   inObserve + "/observe.go",
			Edits:  one("now.Sub(o.observedAt) >= observationGap", "!now.Before(o.observedAt)"),
			Suites: []string{inRoster},
		},
		{
			Name:   "observations-without-quota",
			Harm:   "A subscriber that asks for observations in a loop keeps a LIST of all Nodes and the budget of the cloud busy for ever.",
			File:   inNodeServer + "/observations.go",
			Edits:  one("granted := min(observations, int(limiter.TokensAt(now)))", "granted := observations"),
			Suites: []string{inNodeServer},
		},
		{
			Name:   "one-address-two-nodes",
			Harm:   "Two nodes are told with one address: subscribers end the stream as a breach, again and again.",
			File:   inAssign + "/assign.go",
			Edits:  one("owner := a.owners[address]\n", "var owner *claimant\n"),
			Suites: []string{inRoster},
		},
		{
			Name:   "failover-address-used",
			Harm:   "An address that the LAN shares between servers is given to one of them: traffic goes where the cloud has just moved it.",
			File:   inResolve + "/resolve.go",
			Edits:  one("cloud: &r.cloud, preferred", "preferred"),
			Suites: []string{inRoster},
		},
		{
			Name:   "failed-listing-taken-for-whole",
			Harm:   "A listing that failed is taken for a whole one with nothing in it: new nodes are left out for good, and the status says that all is well.",
			File:   inRoster + "/roster.go",
			Edits:  one("\tif result.Err != nil {\n\t\treturn\n", "\tif result.Err != nil && result.RetryAfter > 0 {\n\t\treturn\n"),
			Suites: []string{inRoster},
		},
		{
			Name:   "retry-after-ignored",
			Harm:   "The cloud's wish to wait is not heeded, and it is asked again after the usual backoff.",
			File:   inObserve + "/listing.go",
			Edits:  one("\tif result.RetryAfter > 0 {\n", "\tif result.RetryAfter < 0 {\n"),
			Suites: []string{inRoster},
		},
		{
			Name:   "no-backoff-to-the-cloud",
			Harm:   "After a failure the cloud, or an API server that is going down, is asked every 5 s for ever.",
			File:   inObserve + "/observe.go",
			Edits:  one("if wait *= 2; wait >= maximum {", "if wait >= maximum {"),
			Suites: []string{inRoster, inObserve},
		},
		{
			Name:   "bookmark-as-proof-of-life",
			Harm:   "A bookmark makes up for a LIST that failed, so an API server whose etcd is frozen is believed.",
			File:   inObserve + "/verification.go",
			Edits:  one("v.lastContact, v.verified, v.failure = update.LastContact, update.Verified, \"\"", "v.lastContact, v.verified, v.failure, v.err, v.okAt = update.LastContact, update.Verified, \"\", \"\", now"),
			Suites: []string{inRoster},
		},
		{
			Name:   "light-look-without-the-watch",
			Harm:   "A light look counts as complete before the watch has caught up with it, so observations speak of a set from before them.",
			File:   inObserve + "/verification.go",
			Edits:  one("\t\tcase v.verified >= result.Number:\n", "\t\tcase result.Number > 0:\n"),
			Suites: []string{inRoster},
		},
		{
			Name:   "old-look-for-a-new-doubt",
			Harm:   "A look that began before the set became empty confirms that it is: one observation short of what was asked for.",
			File:   inObserve + "/verification.go",
			Edits:  one("\tif startedAt.Before(o.anomalyAt) {\n", "\tif startedAt.Before(o.observedAt) {\n"),
			Suites: []string{inRoster},
		},
		{
			Name:   "no-doubt-when-halved",
			Harm:   "Losing more than half of the nodes starts no series of observations: the writers' guards wait a minute for each.",
			File:   inObserve + "/anomaly.go",
			Edits:  one("halved: 2*len(d.removed) > d.base}", "halved: false}"),
			Suites: []string{inRoster},
		},
		{
			Name:   "lasting-anomaly-asks-on",
			Harm:   "A view of which no node is ready asks for observations at each change: a LIST of all Nodes and a listing of the cloud every 5 s.",
			File:   inObserve + "/anomaly.go",
			Edits:  one("d.active.noneReady && !old.noneReady", "d.active.noneReady"),
			Suites: []string{inRoster, inObserve, inFeed},
		},
		{
			Name:   "anomaly-restarts-observation-again",
			Harm:   "A node that flaps faster than the cloud is listed lets no observation complete, so writers hold all that needs one.",
			File:   inObserve + "/observe.go",
			Edits:  one("o.requestObservations(now, o.confirmations, !o.restarted)", "o.requestObservations(now, o.confirmations, true)"),
			Suites: []string{inRoster},
		},
		{
			Name:   "first-word-too-early",
			Harm:   "The first word is given after one listing that misses a node: a writer that has just started takes the rest for all.",
			File:   inRoster + "/roster.go",
			Edits:  one("!m.misses.Confirmed", "m.misses == (observe.Misses{})"),
			Suites: []string{inRoster},
		},
		{
			Name:   "blind-is-told-as-empty",
			Harm:   "While no eligible node has an address the list is told as complete and empty, instead of being withdrawn.",
			File:   inObserve + "/observe.go",
			Edits:  one("o.everPublished && (o.counts.Eligible == 0 || o.counts.Published > 0)", "o.everPublished"),
			Suites: []string{inRoster},
		},
		{
			Name:   "frozen-etcd-is-synced",
			Harm:   "Membership stays SYNCED however long no look was answered.",
			File:   inObserve + "/status.go",
			Edits:  one("case now.Sub(v.okAt) > maxIdle:", "case v.okAt.IsZero():"),
			Suites: []string{inRoster},
		},
		{
			Name:   "deselected-node-stays",
			Harm:   "A node whose labels no longer match the view's selector is kept in it.",
			File:   inFeed + "/store.go",
			Edits:  one("if c.Node == nil || !s.view.selects(c.Node) {", "if c.Node == nil {"),
			Suites: []string{inFeed},
		},
		{
			Name:   "set-before-the-first-word",
			Harm:   "Readers are told the set before it is complete, and take a part of it for all.",
			File:   inFeed + "/store.go",
			Edits:  one("\tcase !u.Synced: // the update has only a status\n", "\tcase false:\n"),
			Suites: []string{inFeed, inNodeServer},
		},
	}
}
