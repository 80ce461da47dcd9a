package plan

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/display"
	problem "github.com/slicefeed/slicefeed/services/internal/report"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/planner"
	"github.com/slicefeed/slicefeed/services/writer/report"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// Report is the result of plan.
type Report struct {
	Services []Service `json:"services"` // by namespace and name
}

// Service is what would be done about one target.
type Service struct {
	Namespace string `json:"namespace"`
	Service   string `json:"service"`
	State     string `json:"state"`             // managed, paused, rejected or optedOut
	Message   string `json:"message,omitempty"` // why it is rejected

	// WritesBlocked means that a guard blocks all writes.
	WritesBlocked bool    `json:"writesBlocked"`
	Writes        []Write `json:"writes"` // of a paused Service: after the pause

	Endpoints     []Endpoint `json:"endpoints"` // by address
	PendingProbes int        `json:"pendingProbes"`
	ProbeTimeout  string     `json:"probeTimeout"` // for which they were awaited; a duration such as 8s

	Problems []command.Message `json:"problems"` // a Problem of slicefeed.report.v1 each, the most severe first

	problems []*problem.Problem
}

// Write is a request to the API server.
type Write struct {
	Verb    string          `json:"verb"` // create, update or delete
	Slice   string          `json:"slice"`
	Changes []report.Change `json:"changes"`
}

// Endpoint is the verdict about one address.
type Endpoint struct {
	Address string `json:"address"`
	Verdict string `json:"verdict"` // serve, drain, unready, remove or hold
	Desired string `json:"desired"` // ready, draining, not ready or not listed
	Rule    string `json:"rule"`    // table, or the name of a guard
	Reason  string `json:"reason"`
}

// Print prints what would be written for each target, the verdict about each endpoint, and what guards hold. Its error
// names the rejected targets.
func Print(out io.Writer, format command.Format, results []Result) error {
	all := Report{Services: []Service{}}
	var rejected []error
	for i := range results {
		if !results[i].View.Relevant {
			continue
		}
		service := describeService(&results[i])
		all.Services = append(all.Services, service)
		if service.State == stateRejected {
			rejected = append(
				rejected,
				fmt.Errorf("service %s is rejected, and nothing is added to its slices: %s", results[i].Key, service.Message),
			)
		}
	}
	var err error
	if format.IsTable() {
		_, err = io.WriteString(out, all.text())
	} else {
		err = format.Write(out, all)
	}
	return errors.Join(append(rejected, err)...)
}

// States of a Service.
const (
	stateManaged  = "managed"
	statePaused   = "paused"
	stateRejected = "rejected"
	stateOptedOut = "optedOut"
)

func describeService(result *Result) Service {
	s := Service{
		Namespace:     result.Key.Namespace,
		Service:       result.Key.TargetName(),
		State:         stateManaged,
		PendingProbes: result.PendingProbes,
		ProbeTimeout:  result.ProbeTimeout.String(),
		Writes:        []Write{},
		Endpoints:     []Endpoint{},
		Problems:      command.Messages(result.Problems),
		problems:      result.Problems,
	}
	plan := planner.Plan{}
	switch {
	case result.View.Rejection != nil:
		rejection := result.View.Rejection
		s.State, s.Message = stateRejected, problem.WithAdvice(rejection.Reason, rejection.Message)
		return s
	case result.View.OptedOut:
		s.State = stateOptedOut
		plan.Delete = result.View.Slices
	case result.Decision.Write:
		plan = planner.Compute(result.Desired, result.View.Slices)
	default:
		s.WritesBlocked = true
	}
	s.addWrites("create", plan.Create, result.View.Slices)
	s.addWrites("update", plan.Update, result.View.Slices)
	s.addWrites("delete", plan.Delete, result.View.Slices)
	if result.View.OptedOut {
		return s
	}
	if result.View.Paused {
		s.State = statePaused
	}
	for i := range result.Decision.Endpoints {
		s.Endpoints = append(s.Endpoints, newEndpoint(&result.Decision.Endpoints[i]))
	}
	return s
}

func (s *Service) addWrites(verb string, all, current []*discoveryv1.EndpointSlice) {
	for _, slice := range all {
		var before *discoveryv1.EndpointSlice
		if i := slices.IndexFunc(current, func(c *discoveryv1.EndpointSlice) bool { return c.Name == slice.Name }); i >= 0 {
			before = current[i]
		}
		after := slice
		if verb == "delete" {
			after = nil
		}
		changes := append([]report.Change{}, report.CompareSlices(before, after, nil)...)
		s.Writes = append(s.Writes, Write{verb, slice.Name, changes})
	}
}

func newEndpoint(e *verdict.Endpoint) Endpoint {
	return Endpoint{e.Address.String(), e.Verdict.String(), endpoints.Wanted(e).String(), string(e.Rule), display.Sanitize(e.Reason)}
}

// text is the report for people. Its error names the rejected Services instead.
func (r *Report) text() string {
	var b strings.Builder
	for i := range r.Services {
		s := &r.Services[i]
		if s.State == stateRejected {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		s.print(&b)
	}
	if len(r.Services) == 0 {
		b.WriteString("No targets. Label a Service slicefeed.dev/class or set TARGET_SERVICE_NAME.\n")
	}
	return b.String()
}

// writes is the text about what would be written.
func (s *Service) writes() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Service %s/%s\n\n", s.Namespace, s.Service)
	if s.State == stateOptedOut {
		b.WriteString("Opted out: slices will be deleted.\n\n")
	}
	for _, w := range s.Writes {
		fmt.Fprintf(&b, "%s EndpointSlice %s\n%s\n", w.Verb, w.Slice, report.FormatChanges(w.Changes))
	}
	switch {
	case s.State == statePaused:
		b.WriteString("paused by annotation slicefeed.dev/paused: nothing of this is written\n\n")
	case s.WritesBlocked:
		b.WriteString("writes blocked by a guard, see below\n\n")
	case len(s.Writes) == 0:
		b.WriteString("nothing to write\n\n")
	}
	return b.String()
}

func (s *Service) print(b *strings.Builder) {
	b.WriteString(s.writes())
	if s.State == stateOptedOut {
		return
	}
	printVerdicts(b, s.Endpoints)
	if s.PendingProbes > 0 {
		fmt.Fprintf(b, "\nProbes still pending after %s: %d. A running writer waits for them.\n", s.ProbeTimeout, s.PendingProbes)
	}
	for _, p := range s.problems {
		fmt.Fprintf(b, "\n%s: %s\n", p.GetReason(), problem.WithAdvice(p.GetReason(), p.GetMessage()))
	}
}

// printVerdicts prints a table of the endpoints with the rule that decided and its reason.
func printVerdicts(b *strings.Builder, all []Endpoint) {
	if len(all) == 0 {
		b.WriteString("no endpoint is listed or reported\n")
		return
	}
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ADDRESS\tVERDICT\tDESIRED\tRULE\tREASON")
	for _, e := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", e.Address, e.Verdict, e.Desired, e.Rule, e.Reason)
	}
	table.Flush() //nolint:errcheck // writes to memory
}
