package mutants

const (
	inSubscriber  = "services/writer/subscriber"
	inTargetwatch = "services/writer/targetwatch"
	inInputs      = "services/writer/inputs"
	inNodeClient  = "services/writer/nodeclient"
	inProber      = "services/writer/prober"
	inTargets     = "services/writer/targets"
	inVerdict     = "services/writer/verdict"
	inPlanner     = "services/writer/planner"
	inApplier     = "services/writer/applier"
	inReconciler  = "services/writer/reconciler"
	inElection    = "services/writer/election"
	inEvents      = "services/writer/events"

	inServiceFeeds = "services/writer/servicefeeds"
)

// writer are the bugs in the writer, but for those of the verdict.
func writer() []Mutant {
	return append(verdicts(), []Mutant{
		{
			Name:   "unknown-enum-acted-upon",
			Harm:   "A newer inventory's state counts as NOT_READY.",
			File:   inSubscriber + "/decode.go",
			Edits:  one("\tdefault:\n\t\treturn Unknown\n", "\tdefault:\n\t\treturn NotReady\n"),
			Suites: []string{inSubscriber},
		},
		{
			Name:   "hostname-not-checked",
			Harm:   "A hostname that is no DNS label is written: the API server rejects the whole slice.",
			File:   inSubscriber + "/decode.go",
			Edits:  one("hostname != \"\" && !contract.IsHostname(hostname)", "hostname == \" \""),
			Suites: []string{inSubscriber},
		},
		{
			Name:   "workload-of-the-service-ignored",
			Harm:   "The workload that a Service chooses is ignored: its endpoints are those of all nodes.",
			File:   inInputs + "/inputs.go",
			Edits:  one("states[member.StateBy(c.Workload)]", "states[member.State]"),
			Suites: []string{inInputs},
		},
		{
			Name:   "another-workload-keeps-the-old-states",
			Harm:   "A Service that chooses another workload keeps the states by the old one until the source changes.",
			File:   inInputs + "/inputs.go",
			Edits:  one("fmt.Sprint(c.Families, c.Workload, \" \", c.selectorText())", "fmt.Sprint(c.Families, c.selectorText())"),
			Suites: []string{inInputs},
		},
		{
			Name:   "missing-workload-counts",
			Harm:   "A source that does not export the workload of a Service is trusted: nodes that it no longer reports are removed.",
			File:   inSubscriber + "/snapshot.go",
			Edits:  one("name != \"\" && s.SyncedInStream && !slices", "name == \" \" && s.SyncedInStream && !slices"),
			Suites: []string{inInputs, inReconciler},
		},
		{
			Name:   "set-of-another-service-taken",
			Harm:   "The set of an inventory that does not know exported Services passes for that of the Service: its nodes are written.",
			File:   inNodeClient + "/session.go",
			Edits:  one("if m.GetService() != s.cfg.Service {", "if m.GetService() != \"\" && m.GetService() != s.cfg.Service {"),
			Suites: []string{inServiceFeeds},
		},
		{
			Name: "inputs-of-the-previous-service-kept",
			Harm: "A target that names another exported Service keeps the endpoints of the previous one until that changes.",
			File: inReconciler + "/convert.go",
			Edits: []Edit{
				{"s.sources[snapshot.FeedName()]\n", "s.sources[snapshot.Source]\n"},
				{"s.sources[snapshot.FeedName()] = kept", "s.sources[snapshot.Source] = kept"},
			},
			Suites: []string{inReconciler},
		},
		{
			Name:   "stream-of-an-unused-service-kept",
			Harm:   "The stream of an exported Service goes on when no target uses it any more.",
			File:   inServiceFeeds + "/servicefeeds.go",
			Edits:  one("\t\t\tx.stop()\n", ""),
			Suites: []string{inServiceFeeds},
		},
		{
			Name: "connection-for-each-service",
			Harm: "Each exported Service has a connection of its own: the inventory rejects the 17th.",
			File: "services/writer/sources/shared.go",
			Edits: one(
				"if l.current == nil || l.current.failed() {",
				"if l.current == nil || l.current.failed() || l.current.users > 0 {",
			),
			Suites: []string{inServiceFeeds},
		},
		{
			Name: "change-of-a-service-decides-nothing",
			Harm: "A change of an exported Service is not followed until something else changes.",
			File: inReconciler + "/run.go",
			Edits: one(
				"r.decideDependents(dependency{source: name, service: service})",
				"r.decideDependents(dependency{source: service})",
			),
			Suites: []string{inReconciler},
		},
		{
			Name:   "digest-not-checked",
			Harm:   "The digest is not checked: a missed removal is never noticed.",
			File:   inSubscriber + "/mirror.go",
			Edits:  one("case !bytes.Equal(m.GetDigest(), mirror.staged.digest[:]):", "case bytes.Equal(m.GetDigest(), nil):"),
			Suites: []string{inSubscriber},
		},
		{
			Name:   "unsynced-state-in-force",
			Harm:   "A part of a set is in force: the rest counts as removed.",
			File:   inSubscriber + "/mirror.go",
			Edits:  one("\tif m.GetSynced() {\n\t\tmirror.commitStaged", "\tif mirror.staged != nil {\n\t\tmirror.commitStaged"),
			Suites: []string{inSubscriber},
		},
		{
			Name: "violation-clears-the-set",
			Harm: "A protocol violation drops the set, and every endpoint with it.",
			File: inSubscriber + "/mirror.go",
			Edits: one(
				"\tmirror.current.Cursor, mirror.current.Digest = Cursor{}, deltaset.Digest{}\n\tmirror.observationUnchecked = true\n",
				"\t*mirror = *NewMirror()\n\t_ = deltaset.Digest{}\n",
			),
			Suites: []string{inSubscriber},
		},
		{
			Name: "silence-ignored",
			Harm: "A link that is silent for three heartbeats counts as alive.",
			File: inNodeClient + "/session.go",
			Edits: []Edit{
				{
					"idle := time.AfterFunc(maxIdleHeartbeats*sess.heartbeat,",
					"idle := time.AfterFunc(1000*maxIdleHeartbeats*sess.heartbeat,",
				},
				{"idle.Reset(maxIdleHeartbeats * sess.heartbeat)", "idle.Reset(1000 * maxIdleHeartbeats * sess.heartbeat)"},
			},
			Suites: []string{inNodeClient},
		},
		{
			Name:   "reconnect-without-backoff",
			Harm:   "A thousand writers call an inventory within half a second.",
			File:   inNodeClient + "/schedule.go",
			Edits:  one("\ts.failures++\n", ""),
			Suites: []string{inNodeClient},
		},
		{
			Name:   "probe-status-never-expires",
			Harm:   "A writer without sockets reports every backend as passing forever.",
			File:   inProber + "/expiry.go",
			Edits:  one("const expiryIntervals = 3\n", "const expiryIntervals = 3_000_000\n"),
			Suites: []string{inProber},
		},
		{
			Name: "first-come-first-served",
			Harm: "One filtered Service takes all probes: no other death is noticed.",
			File: inProber + "/shares.go",
			Edits: one(
				"\tavailable := min(free, sourceWeight*free-s.inFlightBySource[q.share.Source])\n",
				"\tavailable := s.limit * free\n",
			),
			Suites: []string{inProber},
		},
		{
			Name:   "unprobed-is-not-blind",
			Harm:   "A leader that cannot probe keeps the Lease.",
			File:   inReconciler + "/stepdown.go",
			Edits:  one("blinded || d.Panic || d.CannotProbe", "blinded || d.Panic"),
			Suites: []string{inReconciler},
		},
		{
			Name:   "fall-off-by-one",
			Harm:   "Two failures count instead of three.",
			File:   inProber + "/status.go",
			Edits:  one("fall        = 3", "fall        = 2"),
			Suites: []string{inProber},
		},
		{
			Name:   "rise-off-by-one",
			Harm:   "One pass is enough after a failure: a backend that answers now and then flaps.",
			File:   inProber + "/status.go",
			Edits:  one("riseRecover = 2", "riseRecover = 1"),
			Suites: []string{inProber},
		},
		{
			Name: "inconclusive-counts-as-failure",
			Harm: "A probe that was not sent counts against the backend.",
			File: inProber + "/schedule.go",
			Edits: one(
				"\tcase result == probe.Inconclusive:\n\t\tr.inconclusiveReason = detail\n\t\ts.updateExpiry(r)\n\t\treturn s.expireKey(r, now)\n",
				"",
			),
			Suites: []string{inProber},
		},
		{
			Name: "jitter-lengthens",
			Harm: "Jitter lengthens the interval: a death is noticed too late.",
			File: inProber + "/schedule.go",
			Edits: one(
				"now.Add(interval - time.Duration(float64(interval)*jitterRatio*random))",
				"now.Add(interval + time.Duration(float64(interval)*jitterRatio*random))",
			),
			Suites: []string{inProber},
		},
		{
			Name:   "late-probe-overrules",
			Harm:   "An older probe that ends later overrules the newer one.",
			File:   inProber + "/status.go",
			Edits:  one("case seq < c.lastAgreeing:", "case seq < 1:"),
			Suites: []string{inProber},
		},
		{
			Name:   "no-control-probes",
			Harm:   "A failure waits for the next regular probe of another endpoint.",
			File:   inProber + "/controls.go",
			Edits:  one("s.healthCounts[Passing] == 0", "s.healthCounts[Passing] >= 0"),
			Suites: []string{inProber},
		},
		{
			Name:   "mistyped-name-empties",
			Harm:   "A mistyped TARGET_SERVICE_NAME deletes the slices of the Service it named before.",
			File:   inTargets + "/optout.go",
			Edits:  one("neverTarget := class == \"\" && !before.Labeled", "neverTarget := class == \"\" && before.Labeled"),
			Suites: []string{inTargets},
		},
		{
			Name:   "accepted-settings-forgotten",
			Harm:   "A typing mistake in an annotation ends the probes of a working Service.",
			File:   inTargets + "/resolve.go",
			Edits:  one("candidates.accepted = &accepted", "candidates.accepted = nil"),
			Suites: []string{inTargets},
		},
		{
			Name: "accepted-settings-outlive-the-limits",
			Harm: "A Service with invalid annotations keeps what the operator no longer allows.",
			File: inTargets + "/resolve.go",
			Edits: one(
				"problem := cfg.resolveTarget(&kept, svc); problem == nil {",
				"problem := cfg.resolveTarget(&kept, svc); problem == nil || candidates.annotated != nil {",
			),
			Suites: []string{inTargets},
		},
		{
			Name:   "removed-label-acts-at-once",
			Harm:   "kubectl replace without the label deletes all slices immediately.",
			File:   inTargets + "/optout.go",
			Edits:  one("optOutGracePeriod = time.Minute", "optOutGracePeriod = 0 * time.Minute"),
			Suites: []string{inTargets},
		},
		{
			Name:   "hand-over-does-not-wait",
			Harm:   "A change of class deletes the slices before the new ones are ready.",
			File:   inTargets + "/optout.go",
			Edits:  one("class != \"\" && cfg.isReplaced(leftovers, class, svc, in.Slices)", "class != \"\""),
			Suites: []string{inTargets},
		},
		{
			Name:   "hand-over-waits-for-nothing-ready",
			Harm:   "Slices without a ready endpoint end the hand-over.",
			File:   inTargets + "/optout.go",
			Edits:  one("slices.ContainsFunc(other.Endpoints, isReady)", "len(other.Endpoints) > 0"),
			Suites: []string{inTargets},
		},
		{
			Name:   "rejected-service-gains-endpoints",
			Harm:   "A rejected Service follows its sources.",
			File:   inVerdict + "/sources.go",
			Edits:  one("\tcase input.Rejected:\n\t\treturn \"the Service is rejected\"\n", ""),
			Suites: []string{inVerdict},
		},
		{
			Name:   "rejected-service-is-not-probed",
			Harm:   "A dead endpoint of a rejected Service stays ready.",
			File:   inTargets + "/resolve.go",
			Edits:  one("resolution.ProbesOnly = cfg.resolveProbesOnly(&target, in, candidates)", "resolution.ProbesOnly = false"),
			Suites: []string{inTargets},
		},
		{
			Name:   "rejected-service-is-rewritten",
			Harm:   "The ports and labels of a rejected Service are rewritten.",
			File:   inReconciler + "/slot.go",
			Edits:  one("Current: current, Adjust: view.Rejection != nil,", "Current: current, Adjust: false,"),
			Suites: []string{inReconciler},
		},
		{
			Name: "namespaces-of-a-source-ignored",
			Harm: "A Service in any namespace can use any source.",
			File: inTargets + "/resolve.go",
			Edits: one(
				"if len(source.Namespaces) > 0 && !slices.Contains(source.Namespaces, t.Namespace) {",
				"if len(source.Namespaces) > 0 && t.Namespace == \"\" {",
			),
			Suites: []string{inTargets},
		},
		{
			Name: "foreign-slice-touched",
			Harm: "Another controller's slices are rewritten and deleted.",
			File: inPlanner + "/planner.go",
			Edits: one(
				"slice.Namespace != d.Namespace || slice.Labels[discoveryv1.LabelManagedBy] != d.ManagedBy {",
				"slice.Namespace != d.Namespace {",
			),
			Suites: []string{inPlanner},
		},
		{
			Name: "removal-before-destination",
			Harm: "An endpoint that moves between slices is absent for a moment.",
			File: inPlanner + "/compute.go",
			Edits: one(
				"cmp.Compare(boolToInt(a.releasesEndpoints), boolToInt(b.releasesEndpoints)),",
				"cmp.Compare(boolToInt(b.releasesEndpoints), boolToInt(a.releasesEndpoints)),",
			),
			Suites: []string{inPlanner},
		},
		{
			Name:   "writes-without-a-change",
			Harm:   "Every decision writes every slice.",
			File:   inPlanner + "/compute.go",
			Edits:  one("s.changed = len(s.kept) != len(s.base.Endpoints) ||", "s.changed = len(s.kept) >= 0 ||"),
			Suites: []string{inPlanner},
			Seeds:  200,
		},
		{
			Name:   "port-groups-share-slices",
			Harm:   "Endpoints that listen on other ports get the Service's: connections to them fail.",
			File:   inPlanner + "/compute.go",
			Edits:  one("g.source == source && g.portList == portList", "g.source == source"),
			Suites: []string{inPlanner},
		},
		{
			Name: "hostname-left-as-found",
			Harm: "A hostname that another client writes stays, and with it a name for the wrong endpoint.",
			File: inPlanner + "/slice.go",
			Edits: one(
				"deref(current.Hostname) == desired.Hostname",
				"(desired.Hostname == \"\" || deref(current.Hostname) == desired.Hostname)",
			),
			Suites: []string{inPlanner},
		},
		{
			Name: "limit-off-by-one",
			Harm: "A slice takes one endpoint too many, which the API server rejects at 1,000.",
			File: inPlanner + "/compute.go",
			Edits: one(
				"n := max(min(limit-s.endpointCount(), len(indexes)), 0)",
				"n := max(min(limit+1-s.endpointCount(), len(indexes)), 0)",
			),
			Suites: []string{inPlanner},
		},
		{
			Name:   "current-older-than-own-write",
			Harm:   "Current endpoints come from a cache older than our own write.",
			File:   inApplier + "/memory.go",
			Edits:  one("if !isNewer(m.version, version) && !m.showsDeleted(cached) {", "if !m.showsDeleted(cached) {"),
			Suites: []string{inApplier},
		},
		{
			Name:   "foreign-edits-count-as-current",
			Harm:   "What someone else added counts as current, and guards protect it.",
			File:   inApplier + "/memory.go",
			Edits:  one("\t\t\tslice = left\n", ""),
			Suites: []string{inApplier},
		},
		{
			Name:   "stale-leaders-write",
			Harm:   "Leadership is not checked before sending: a paused writer overwrites the next leader.",
			File:   inApplier + "/applier.go",
			Edits:  one("if !a.cfg.Leading() || !a.isCurrent(m) {", "if !a.isCurrent(m) {"),
			Suites: []string{inApplier},
		},
		{
			Name: "repeated-attempt-unchecked",
			Harm: "client-go's own repetition is sent whoever leads by then.",
			File: inApplier + "/store.go",
			Edits: one(
				"strings.Contains(r.URL.Path, \"/endpointslices\") && !g.leading() {",
				"strings.HasPrefix(r.URL.Path, \"/endpointslices\") && !g.leading() {",
			),
			Suites: []string{inApplier},
		},
		{
			Name: "update-without-resource-version",
			Harm: "An update overwrites what was written since.",
			File: inApplier + "/store.go",
			Edits: one(
				"err := sendOnce(c.client.DiscoveryV1().RESTClient().Put()",
				"slice = slice.DeepCopy()\n\tslice.ResourceVersion = \"\"\n\terr := sendOnce(c.client.DiscoveryV1().RESTClient().Put()",
			),
			Suites: []string{inApplier},
		},
		{
			Name: "delete-without-preconditions",
			Harm: "A late delete removes a new slice of the same name.",
			File: inApplier + "/store.go",
			Edits: one(
				"&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &slice.UID, ResourceVersion: &slice.ResourceVersion}}",
				"&metav1.DeleteOptions{}",
			),
			Suites: []string{inApplier},
		},
		{
			Name:   "lost-answer-forgotten",
			Harm:   "A write without an answer counts as someone else's edit.",
			File:   inApplier + "/applier.go",
			Edits:  one("\tm.unsure[slice.Name] = struct{}{}\n", ""),
			Suites: []string{inApplier},
		},
		{
			Name:   "term-begins-with-the-cache",
			Harm:   "A new leader writes from a stale cache: nothing stays ready.",
			File:   inApplier + "/read.go",
			Edits:  one("if m.listed && len(unsure) == 0 {", "if len(unsure) == 0 {"),
			Suites: []string{inApplier},
		},
		{
			Name:   "retry-after-of-api-server-ignored",
			Harm:   "Retry-After of the API server is ignored, for every Service.",
			File:   inApplier + "/applier.go",
			Edits:  one("wait = time.Duration(seconds) * time.Second", "wait = min(wait, time.Duration(seconds)*time.Second)"),
			Suites: []string{inApplier},
		},
		{
			Name:   "repairs-without-backoff",
			Harm:   "Two controllers write one slice once a second forever.",
			File:   inApplier + "/repair.go",
			Edits:  one("wait = time.Second << b.delayed", "wait = time.Second"),
			Suites: []string{inApplier},
		},
		{
			Name:   "deletes-do-not-count-as-repairs",
			Harm:   "Repairs of added or deleted slices have no backoff and no Event.",
			File:   inApplier + "/repair.go",
			Edits:  one("m.inSync && order.plan().Empty() {", "m.inSync && order.plan().Empty() && false {"),
			Suites: []string{inApplier},
		},
		{
			Name:   "all-clear-while-rejected",
			Harm:   "An Event says that a guard is over while its Service is not managed.",
			File:   inEvents + "/recovery.go",
			Edits:  one("case current.Managed:", "default:"),
			Suites: []string{inEvents},
		},
		{
			Name:   "all-clear-of-a-standby",
			Harm:   "Each replica that has led reports that a guard is over.",
			File:   inEvents + "/recovery.go",
			Edits:  one("case !current.Leading, !current.Managed", "case !current.Managed"),
			Suites: []string{inEvents},
		},
		{
			Name: "all-clear-without-pause",
			Harm: "A guard that comes and goes has an Event each time.",
			File: inEvents + "/recovery.go",
			Edits: one(
				"e.over, wake = now, earliest(wake, now.Add(calmPeriod))",
				"e.over, wake = now.Add(-calmPeriod), now.Add(time.Second)",
			),
			Suites: []string{inEvents},
		},
		{
			Name:   "lease-not-confirmed-before-a-repair",
			Harm:   "A leader without its Lease repairs the new leader's writes.",
			File:   inApplier + "/applier.go",
			Edits:  one("a.cfg.Confirm != nil && change != nil", "false && change != nil"),
			Suites: []string{inApplier},
		},
		{
			Name:   "lease-waited-for-as-long-as-it-says",
			Harm:   "A Lease of 68 years stops every new writer.",
			File:   inElection + "/lock.go",
			Edits:  one("record.LeaseDurationSeconds = min(record.LeaseDurationSeconds, int((own+waitMargin)/time.Second))", "_ = own"),
			Suites: []string{inElection},
		},
		{
			Name: "lease-counted-from-the-answer",
			Harm: "A late renewal makes the Lease look held for too long: two leaders write.",
			File: inElection + "/lock.go",
			Edits: one(
				"o.lease.setValidUntil(sent.Add(o.lease.cfg.RenewDeadline))",
				"o.lease.setValidUntil(time.Now().Add(o.lease.cfg.RenewDeadline + sent.Sub(sent)))",
			),
			Suites: []string{inElection},
		},
		{
			Name:   "retry-without-backoff",
			Harm:   "A failed write is repeated without pause.",
			File:   inReconciler + "/reconciler.go",
			Edits:  one("time.Now().Add(r.backoff.When(key))", "time.Now()"),
			Suites: []string{inReconciler},
		},
		{
			Name:   "lease-passed-in-circles",
			Harm:   "Two writers hand the Lease to each other without end.",
			File:   inReconciler + "/stepdown.go",
			Edits:  one(" || !blind.After(since) {", " || blind.IsZero() {"),
			Suites: []string{inReconciler},
		},
		{
			Name:   "memory-of-another-service",
			Harm:   "A new Service of the same name inherits its predecessor's memory.",
			File:   inReconciler + "/reconciler.go",
			Edits:  one("s.uid, s.memory, s.ports = uid, verdict.Memory{}, nil", "s.uid, s.ports = uid, nil"),
			Suites: []string{inReconciler},
		},
		{
			Name:   "paused-is-written",
			Harm:   "A paused Service is written.",
			File:   inReconciler + "/slot.go",
			Edits:  one("if !decision.Write || view.Paused {", "if !decision.Write {"),
			Suites: []string{inReconciler},
		},
	}...)
}
