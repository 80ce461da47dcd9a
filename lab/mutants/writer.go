package mutants

const (
	inSubscriber = "services/writer/subscriber"
	inProber     = "services/writer/prober"
	inTargets    = "services/writer/targets"
	inVerdict    = "services/writer/verdict"
	inPlanner    = "services/writer/planner"
	inApplier    = "services/writer/applier"
	inControl    = "services/writer/control"
)

// writer are the bugs in the writer, but for those of the verdict.
func writer() []Mutant {
	return append(verdicts(), []Mutant{
		{
			Name:   "unknown-enum-acted-upon",
			Harm:   "A state that only a newer inventory knows is taken for NOT_READY, so an upgrade of one half takes endpoints out.",
			File:   inSubscriber + "/decode.go",
			Edits:  one("\tdefault:\n\t\treturn Unknown\n", "\tdefault:\n\t\treturn NotReady\n"),
			Suites: []string{inSubscriber},
		},
		{
			Name:   "digest-not-checked",
			Harm:   "The set is not held against its digest, so a delete that was missed is never noticed.",
			File:   inSubscriber + "/view.go",
			Edits:  one("case !bytes.Equal(m.GetDigest(), v.staged.digest[:]):", "case bytes.Equal(m.GetDigest(), nil):"),
			Suites: []string{inSubscriber},
		},
		{
			Name:   "unsynced-state-in-force",
			Harm:   "A part of a set is put in force before it is whole, and the nodes of its later messages are taken for gone.",
			File:   inSubscriber + "/view.go",
			Edits:  one("\tif m.GetSynced() {\n\t\tv.commit", "\tif v.staged != nil {\n\t\tv.commit"),
			Suites: []string{inSubscriber},
		},
		{
			Name:   "breach-clears-the-set",
			Harm:   "A peer that breaks the contract once takes every endpoint with it, since its set is dropped with the cursor.",
			File:   inSubscriber + "/view.go",
			Edits:  one("\tv.cursor = Cursor{}\n\tv.observation.forgotten = true\n", "\t*v = *NewView()\n"),
			Suites: []string{inSubscriber},
		},
		{
			Name: "silence-ignored",
			Harm: "A link that says nothing for three heartbeats is still taken for alive, and what it said last for the truth.",
			File: inSubscriber + "/subscriber.go",
			Edits: []Edit{
				{"silence := time.NewTimer(silentIntervals * c.interval)", "silence := time.NewTimer(1000 * silentIntervals * c.interval)"},
				{"silence.Reset(silentIntervals * c.interval)", "silence.Reset(1000 * silentIntervals * c.interval)"},
			},
			Suites: []string{inSubscriber},
		},
		{
			Name:   "reconnect-without-backoff",
			Harm:   "An inventory that is down is called once or twice a second by every writer, and buried when it comes back.",
			File:   inSubscriber + "/schedule.go",
			Edits:  one("\ts.failures++\n", ""),
			Suites: []string{inSubscriber},
		},
		{
			Name:   "fall-off-by-one",
			Harm:   "Two failed probes put an endpoint out, where three are promised.",
			File:   inProber + "/schedule.go",
			Edits:  one("fall        = 3", "fall        = 2"),
			Suites: []string{inProber},
		},
		{
			Name:   "rise-off-by-one",
			Harm:   "One success redeems an endpoint that failed, so one that answers now and then flaps.",
			File:   inProber + "/schedule.go",
			Edits:  one("riseAgain   = 2", "riseAgain   = 1"),
			Suites: []string{inProber},
		},
		{
			Name:   "void-counts-as-failure",
			Harm:   "A probe that could not be sent counts against the backend: a writer short of sockets puts everything out.",
			File:   inProber + "/schedule.go",
			Edits:  one("\tcase outcome == Void:\n\t\treturn false\n", ""),
			Suites: []string{inProber},
		},
		{
			Name:   "jitter-lengthens",
			Harm:   "Jitter makes the interval longer instead of shorter, and a dead backend is noticed later than promised.",
			File:   inProber + "/schedule.go",
			Edits:  one("now.Add(interval - time.Duration(float64(interval)*jitterShare*random))", "now.Add(interval + time.Duration(float64(interval)*jitterShare*random))"),
			Suites: []string{inProber},
		},
		{
			Name:   "late-probe-overrules",
			Harm:   "A probe that began earlier and ends later overrules the newer answer, so a backend that has come back is put out again.",
			File:   inProber + "/schedule.go",
			Edits:  one("case a.seq < r.agreed:", "case a.seq < 1:"),
			Suites: []string{inProber},
		},
		{
			Name:   "mistyped-name-empties",
			Harm:   "A mistyped TARGET_SERVICE_NAME deletes the slices of the Service that it used to name.",
			File:   inTargets + "/resolve.go",
			Edits:  one("; labelled || before.Labelled {", "; labelled || !before.Labelled {"),
			Suites: []string{inTargets},
		},
		{
			Name:   "namespaces-of-a-source-ignored",
			Harm:   "Anybody who may edit a Service in any namespace can have it point at any source.",
			File:   inTargets + "/resolve.go",
			Edits:  one("if len(source.Namespaces) > 0 && !slices.Contains(source.Namespaces, t.Namespace) {", "if len(source.Namespaces) > 0 && t.Namespace == \"\" {"),
			Suites: []string{inTargets},
		},
		{
			Name:   "foreign-slice-touched",
			Harm:   "Slices of another controller are taken for ours, rewritten and deleted.",
			File:   inPlanner + "/planner.go",
			Edits:  one("slice.Namespace != d.Namespace || slice.Labels[discoveryv1.LabelManagedBy] != d.ManagedBy {", "slice.Namespace != d.Namespace {"),
			Suites: []string{inPlanner},
		},
		{
			Name:   "removal-before-destination",
			Harm:   "An endpoint that moves between slices is removed from the one before it is written to the other: for a moment it is nowhere.",
			File:   inPlanner + "/make.go",
			Edits:  one("cmp.Compare(b2i(a.give), b2i(b.give)),", "cmp.Compare(b2i(b.give), b2i(a.give)),"),
			Suites: []string{inPlanner},
		},
		{
			Name:   "writes-without-a-change",
			Harm:   "Every decision writes every slice, and every kube-proxy of the cluster syncs for nothing.",
			File:   inPlanner + "/make.go",
			Edits:  one("s.change = len(s.keep) != len(s.was.Endpoints) ||", "s.change = len(s.keep) >= 0 ||"),
			Suites: []string{inPlanner},
			Seeds:  200,
		},
		{
			Name:   "limit-off-by-one",
			Harm:   "A slice takes one endpoint more than configured, which the API server refuses at its limit of 1,000.",
			File:   inPlanner + "/make.go",
			Edits:  one("n := max(min(limit-s.len(), len(wants)), 0)", "n := max(min(limit+1-s.len(), len(wants)), 0)"),
			Suites: []string{inPlanner},
		},
		{
			Name:   "held-older-than-our-write",
			Harm:   "What is held is read from a cache that has not seen our own last write, and the guards count from before it.",
			File:   inApplier + "/memory.go",
			Edits:  one("newer(r.newest.ResourceVersion, slice.ResourceVersion) {", "newer(slice.ResourceVersion, r.newest.ResourceVersion) {"),
			Suites: []string{inApplier},
			Seeds:  200,
		},
		{
			Name:   "edits-of-others-are-held",
			Harm:   "What someone else added to a slice of ours counts as held, and our guards protect it.",
			File:   inApplier + "/memory.go",
			Edits:  one("\t\t\tslice = r.ours\n", ""),
			Suites: []string{inApplier},
		},
		{
			Name:   "stale-leaders-write",
			Harm:   "Leadership is not checked just before sending, so a writer that was paused overwrites what the next leader wrote.",
			File:   inApplier + "/applier.go",
			Edits:  one("\tif !a.leading() {\n\t\treturn ErrNotLeading\n\t}\n\tbegan", "\tbegan"),
			Suites: []string{inApplier},
			Seeds:  200,
		},
		{
			Name:   "repeated-attempt-unchecked",
			Harm:   "An attempt that client-go makes again by itself goes out whoever leads by then.",
			File:   inApplier + "/store.go",
			Edits:  one("strings.Contains(r.URL.Path, \"/endpointslices\") && !g.leading() {", "strings.HasPrefix(r.URL.Path, \"/endpointslices\") && !g.leading() {"),
			Suites: []string{inApplier},
		},
		{
			Name:   "update-without-resource-version",
			Harm:   "An update overwrites whatever was written since, another leader's word and a person's repair included.",
			File:   inApplier + "/store.go",
			Edits:  one("err := once(c.client.DiscoveryV1().RESTClient().Put()", "slice = slice.DeepCopy()\n\tslice.ResourceVersion = \"\"\n\terr := once(c.client.DiscoveryV1().RESTClient().Put()"),
			Suites: []string{inApplier},
		},
		{
			Name:   "delete-without-preconditions",
			Harm:   "A delete that is late takes the slice that someone has made anew under the same name.",
			File:   inApplier + "/store.go",
			Edits:  one("&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &slice.UID, ResourceVersion: &slice.ResourceVersion}}", "&metav1.DeleteOptions{}"),
			Suites: []string{inApplier},
		},
		{
			Name:   "lost-answer-forgotten",
			Harm:   "A write whose answer was lost is not looked up: what it did is taken for somebody else's edit, or written again.",
			File:   inApplier + "/applier.go",
			Edits:  one("\t\ta.doubt(service, verb, slice)\n\t\treturn fmt.Errorf(\"%s slice %s, outcome", "\t\treturn fmt.Errorf(\"%s slice %s, outcome"),
			Suites: []string{inApplier},
			Seeds:  1000,
		},
		{
			Name:   "api-server-told-to-wait-ignored",
			Harm:   "An API server that answers 429 with Retry-After is asked again after a second, by every Service's control.",
			File:   inApplier + "/applier.go",
			Edits:  one("wait = time.Duration(seconds) * time.Second", "wait = min(wait, time.Duration(seconds)*time.Second)"),
			Suites: []string{inApplier},
		},
		{
			Name:   "repairs-without-backoff",
			Harm:   "Two controllers that disagree about a slice write it once a second for ever.",
			File:   inApplier + "/repair.go",
			Edits:  one("wait = time.Second << b.waits", "wait = time.Second"),
			Suites: []string{inApplier},
		},
		{
			Name:   "lease-not-confirmed-before-a-repair",
			Harm:   "A leader whose Lease was taken by hand puts right what the new one wrote, and both go on at full speed.",
			File:   inApplier + "/applier.go",
			Edits:  one("a.confirm != nil && a.altered(", "false && a.altered("),
			Suites: []string{inApplier},
		},
		{
			Name:   "lease-waited-for-as-long-as-it-says",
			Harm:   "A Lease that a stolen credential left, for 68 years, keeps every new writer from leading.",
			File:   inApplier + "/lease.go",
			Edits:  one("record.LeaseDurationSeconds = min(record.LeaseDurationSeconds, int((own+waitMargin)/time.Second))", "_ = own"),
			Suites: []string{inApplier},
		},
		{
			Name:   "lease-counted-from-the-answer",
			Harm:   "A renewal that was answered late makes the Lease look ours for longer than it is: two leaders write.",
			File:   inApplier + "/lease.go",
			Edits:  one("w.lease.renewed(sent.Add(w.lease.cfg.RenewDeadline))", "w.lease.renewed(time.Now().Add(w.lease.cfg.RenewDeadline + sent.Sub(sent)))"),
			Suites: []string{inApplier},
		},
		{
			Name:   "retry-without-backoff",
			Harm:   "A write that fails is sent again at once, over and over, to an API server that is in trouble.",
			File:   inControl + "/control.go",
			Edits:  one("c.notTill = time.Now().Add(time.Second << (c.failed - 1))", "c.notTill = time.Now()"),
			Suites: []string{inControl},
		},
		{
			Name:   "lease-passed-in-circles",
			Harm:   "Two writers whose backends are dead indeed hand the Lease to each other without end.",
			File:   inControl + "/surrender.go",
			Edits:  one(" || !blind.After(since) {", " || blind.IsZero() {"),
			Suites: []string{inControl},
		},
		{
			Name:   "memory-of-another-service",
			Harm:   "A Service that is deleted and made anew is judged by what its predecessor's endpoints did.",
			File:   inControl + "/control.go",
			Edits:  one("c.uid, c.memory, c.began = view.Service.UID, verdict.Memory{}, nil", "c.uid, c.began = view.Service.UID, nil"),
			Suites: []string{inControl},
		},
		{
			Name:   "paused-is-written",
			Harm:   "A Service that a person has paused to act by hand is written all the same.",
			File:   inControl + "/control.go",
			Edits:  one("if decision.Write && !view.Paused {", "if decision.Write {"),
			Suites: []string{inControl},
		},
	}...)
}
