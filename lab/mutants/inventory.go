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

	inKubeService = "services/inventory/kubeservice"
	inExports     = "services/inventory/exports"
)

// inventory are the bugs in the inventory.
func inventory() []Mutant {
	return []Mutant{
		{
			Name: "cordon-drains",
			Harm: "A cordon drains although CORDONED is keep.",
			File: inKubeNodes + "/evaluate.go",
			Edits: one(
				"s.signals.scaleDownTaint || s.signals.cordoned && policy == DrainCordoned\n",
				"s.signals.scaleDownTaint || s.signals.cordoned\n",
			),
			Suites: []string{inKubeNodes},
		},
		{
			Name:   "named-workload-counts-no-pods",
			Harm:   "The state by a named workload ignores its Pods: traffic goes to nodes that have none.",
			File:   inKubeNodes + "/evaluate.go",
			Edits:  one("s.evaluateState(rules.Cordoned, true, pods.named[i])", "s.evaluateState(rules.Cordoned, false, pods.named[i])"),
			Suites: []string{inKubeNodes},
		},
		{
			Name:   "workload-states-not-in-fingerprint",
			Harm:   "A state by workload is not in the fingerprint: its change is never sent.",
			File:   inFeed + "/fingerprint.go",
			Edits:  one("h.AddUint(uint64(n.Workloads[name]))", "h.AddUint(0)"),
			Suites: []string{inFeed},
		},
		{
			Name:   "any-service-exported",
			Harm:   "A Service is exported without the label: its owner has not agreed.",
			File:   inKubeService + "/kubeservice.go",
			Edits:  one("matches := e.cfg.Exported.Matches(labels.Set(service.Labels))", "matches := e.cfg.Exported != nil"),
			Suites: []string{inKubeService},
		},
		{
			Name:   "withdrawn-service-followed",
			Harm:   "A Service that has lost the label is followed: what its owner has withdrawn still crosses the link.",
			File:   inKubeService + "/kubeservice.go",
			Edits:  one("\tif e.withheld {\n", "\tif e.withheld && e.watch == nil {\n"),
			Suites: []string{inKubeService},
		},
		{
			Name:   "any-client-sees-any-service",
			Harm:   "A client sees exported Services that its entry does not name.",
			File:   inExports + "/exports.go",
			Edits:  one("client.AllowsService == nil || !client.AllowsService(service)", "client.AllowsService == nil"),
			Suites: []string{inExports},
		},
		{
			Name:   "exported-services-share-a-set",
			Harm:   "All exported Services have the set of the first one.",
			File:   inExports + "/exports.go",
			Edits:  one("\tx := e.services[ref]\n", "\tx := e.services[ref]\n\tfor _, other := range e.services {\n\t\tx = other\n\t}\n"),
			Suites: []string{inExports},
		},
		{
			Name:   "unused-services-kept",
			Harm:   "The watches of exported Services without clients are never ended.",
			File:   inExports + "/exports.go",
			Edits:  one("now.Sub(x.unusedSince) >= unusedTimeout", "now.Sub(x.unusedSince) >= 100*unusedTimeout"),
			Suites: []string{inExports},
		},
		{
			Name:   "full-verification-compares-nothing",
			Harm:   "A full verification finds every set equal: a missed delete is never found.",
			File:   inKubeWatch + "/verify.go",
			Edits:  one("if !t.confirms(name, listed, rv) {", "if t.confirms(name, listed, rv) && name == \"\" {"),
			Suites: []string{inKubeWatch},
		},
		{
			Name:   "torn-listing-accepted",
			Harm:   "A server that leaves between two pages hides another: its node becomes unresolved.",
			File:   inIONOS + "/pages.go",
			Edits:  one("if len(servers) == 0 || servers[0].ID != all[len(all)-1].ID {", "if len(servers) == 0 {"),
			Suites: []string{inIONOS},
		},
		{
			Name:   "echoed-limit-ignored",
			Harm:   "A page that the cloud has shortened passes for the complete listing.",
			File:   inIONOS + "/pages.go",
			Edits:  one("\treturn limit, nil\n", "\treturn requested, nil\n"),
			Suites: []string{inIONOS},
		},
		{
			Name:   "retry-after-cut",
			Harm:   "Retry-After is cut to 30 s: the cloud throttles for longer, then bans the token.",
			File:   inIONOS + "/errors.go",
			Edits:  one("maxRetryAfter = 24 * time.Hour", "maxRetryAfter = 30 * time.Second"),
			Suites: []string{inIONOS},
		},
		{
			Name:   "bad-record-removes",
			Harm:   "An invalid record removes its node: a typing mistake empties the Service.",
			File:   inRoster + "/roster.go",
			Edits:  one("\t\tknown = m.Candidate\n", "\t\tknown.UID = m.UID\n"),
			Suites: []string{inRoster},
		},
		{
			Name:   "nameless-records-remove",
			Harm:   "A record without a name counts as a removed node.",
			File:   inRecords + "/changes.go",
			Edits:  one("\t\tif nameless > 0 {", "\t\tif nameless > 1 {"),
			Suites: []string{inRecords},
		},
		{
			Name:   "successor-inherits",
			Harm:   "A new Node of the same name inherits the address of the old machine.",
			File:   inRoster + "/roster.go",
			Edits:  one("m != nil && m.UID != c.UID {", "m != nil && m.UID == \"\" {"),
			Suites: []string{inRoster},
		},
		{
			Name: "address-not-sticky",
			Harm: "A cloud answer without an address takes it from a working node.",
			File: inAssign + "/assign.go",
			Edits: one(
				"\t\tif !address.IsValid() || address == c.assigned[family] {\n",
				"\t\tif old := c.assigned[family]; !address.IsValid() && old.IsValid() {\n\t\t\tdelete(a.owners, old)\n"+
					"\t\t\tc.assigned[family] = netip.Addr{}\n\t\t}\n\t\tif !address.IsValid() || address == c.assigned[family] {\n",
			),
			Suites: []string{inRoster},
			Seeds:  200,
		},
		{
			Name:   "shared-message-without-its-start",
			Harm:   "A client that resumes at revision 0 gets the message of one that is up to date.",
			File:   inNodeServer + "/watch.go",
			Edits:  one("k.change, k.fromRevision = deltaChange, r.from.Revision\n", "k.fromRevision = r.from.Revision\n"),
			Suites: []string{inNodeServer},
		},
		{
			Name:   "unspecified-address-published",
			Harm:   "A server with 0.0.0.0 is published: a protocol violation ends the source.",
			File:   inResolve + "/address.go",
			Edits:  one("return a.IsGlobalUnicast()", "return a.IsValid()"),
			Suites: []string{inNodeServer},
		},
		{
			Name:   "observations-too-close",
			Harm:   "A file that is read each second confirms a bad write in three seconds.",
			File:   inObserve + "/observe.go",
			Edits:  one("now.Sub(o.observedAt) >= observationGap", "!now.Before(o.observedAt)"),
			Suites: []string{inRoster},
		},
		{
			Name:   "observations-without-quota",
			Harm:   "One subscriber keeps a LIST of all Nodes and the cloud's budget busy forever.",
			File:   inNodeServer + "/observations.go",
			Edits:  one("granted := min(observations, int(limiter.TokensAt(now)))", "granted := observations"),
			Suites: []string{inNodeServer},
		},
		{
			Name:   "one-address-two-nodes",
			Harm:   "Two nodes have one address: subscribers end the stream again and again.",
			File:   inAssign + "/assign.go",
			Edits:  one("owner := a.owners[address]\n", "var owner *claimant\n"),
			Suites: []string{inRoster},
		},
		{
			Name:   "failover-address-used",
			Harm:   "An address that servers share is given to one of them.",
			File:   inResolve + "/resolve.go",
			Edits:  one("cloud: &r.cloud, preferred", "preferred"),
			Suites: []string{inRoster},
		},
		{
			Name:   "failed-listing-taken-for-complete",
			Harm:   "A failed listing counts as complete and empty: new nodes are omitted for good.",
			File:   inRoster + "/roster.go",
			Edits:  one("\tif result.Err != nil {\n\t\treturn\n", "\tif result.Err != nil && result.RetryAfter > 0 {\n\t\treturn\n"),
			Suites: []string{inRoster},
		},
		{
			Name:   "retry-after-ignored",
			Harm:   "The cloud's Retry-After is ignored.",
			File:   inObserve + "/listing.go",
			Edits:  one("\tif result.RetryAfter > 0 {\n", "\tif result.RetryAfter < 0 {\n"),
			Suites: []string{inRoster},
		},
		{
			Name:   "no-backoff-to-the-cloud",
			Harm:   "After a failure the cloud is called every 5 s forever.",
			File:   inObserve + "/observe.go",
			Edits:  one("if wait *= 2; wait >= maximum {", "if wait >= maximum {"),
			Suites: []string{inRoster, inObserve},
		},
		{
			Name: "bookmark-as-proof-of-life",
			Harm: "A bookmark replaces a failed LIST: a frozen etcd is trusted.",
			File: inObserve + "/verification.go",
			Edits: one(
				"v.lastContact, v.verified, v.failure = update.LastContact, update.Verified, \"\"",
				"v.lastContact, v.verified, v.failure, v.err, v.okAt = update.LastContact, update.Verified, \"\", \"\", now",
			),
			Suites: []string{inRoster},
		},
		{
			Name:   "light-verification-without-the-watch",
			Harm:   "A light verification counts before the watch has caught up.",
			File:   inObserve + "/verification.go",
			Edits:  one("\t\tcase v.verified >= result.Number:\n", "\t\tcase result.Number > 0:\n"),
			Suites: []string{inRoster},
		},
		{
			Name:   "old-verification-for-a-new-anomaly",
			Harm:   "A verification from before the set became empty confirms that it is.",
			File:   inObserve + "/verification.go",
			Edits:  one("\tif startedAt.Before(o.anomalyAt) {\n", "\tif startedAt.Before(o.observedAt) {\n"),
			Suites: []string{inRoster},
		},
		{
			Name:   "no-anomaly-when-halved",
			Harm:   "Losing more than half starts no observations: guards wait a minute for each.",
			File:   inObserve + "/anomaly.go",
			Edits:  one("halved: 2*len(d.removed) > d.base}", "halved: false}"),
			Suites: []string{inRoster},
		},
		{
			Name:   "lasting-anomaly-asks-on",
			Harm:   "A lasting anomaly requests observations at each change.",
			File:   inObserve + "/anomaly.go",
			Edits:  one("d.active.noneReady && !old.noneReady", "d.active.noneReady"),
			Suites: []string{inRoster, inObserve, inFeed},
		},
		{
			Name:   "anomaly-restarts-observation-again",
			Harm:   "A node that flaps lets no observation complete.",
			File:   inObserve + "/observe.go",
			Edits:  one("o.requestObservations(now, o.confirmations, !o.restarted)", "o.requestObservations(now, o.confirmations, true)"),
			Suites: []string{inRoster},
		},
		{
			Name:   "first-publication-too-early",
			Harm:   "The first publication misses a node: a new writer removes it.",
			File:   inRoster + "/roster.go",
			Edits:  one("!m.misses.Confirmed", "m.misses == (observe.Misses{})"),
			Suites: []string{inRoster},
		},
		{
			Name:   "blind-is-published-as-empty",
			Harm:   "A set without any address is published as complete and empty.",
			File:   inObserve + "/observe.go",
			Edits:  one("o.everPublished && (o.counts.Eligible == 0 || o.counts.Published > 0)", "o.everPublished"),
			Suites: []string{inRoster},
		},
		{
			Name:   "frozen-etcd-is-synced",
			Harm:   "Membership stays SYNCED however long no verification succeeded.",
			File:   inObserve + "/status.go",
			Edits:  one("case now.Sub(v.okAt) > maxIdle:", "case v.okAt.IsZero():"),
			Suites: []string{inRoster},
		},
		{
			Name:   "deselected-node-stays",
			Harm:   "A node that the view's selector no longer matches stays in it.",
			File:   inFeed + "/store.go",
			Edits:  one("if c.Node == nil || !s.view.selects(c.Node) {", "if c.Node == nil {"),
			Suites: []string{inFeed},
		},
		{
			Name:   "set-before-first-publication",
			Harm:   "Readers get the set before it is complete, and remove the rest.",
			File:   inFeed + "/store.go",
			Edits:  one("\tcase !u.Synced: // the update has only a status\n", "\tcase false:\n"),
			Suites: []string{inFeed, inNodeServer},
		},
	}
}
