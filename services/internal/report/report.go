package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/duration"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	reportv1 "github.com/slicefeed/slicefeed/gen/slicefeed/report/v1"
	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/internal/display"
)

// The names of the components.
const (
	Inventory = "slicefeed-inventory"
	Writer    = "slicefeed-writer"
)

// Report is what an InventoryReport and a WriterReport have in common.
type Report interface {
	proto.Message
	GetVersion() string
	GetInstance() string
	GetFilter() string
	GetTime() *timestamppb.Timestamp
	GetProblems() []*reportv1.Problem
	GetProblemsOmitted() uint32
	GetNextPageToken() string
}

// Filter is the filter of a GetReportRequest. The zero value selects everything.
type Filter struct {
	Text               string
	Namespace, Service string     // empty: all
	Node               string     // not empty: only what concerns this one
	Address            netip.Addr // valid: only what concerns this one
}

const maxFilter = 512 // bytes

// ParseFilter reads NAMESPACE/, NAMESPACE/SERVICE, NAMESPACE/SERVICE/ADDRESS, ADDRESS or NODE. Its error is for the client.
func ParseFilter(text string) (f Filter, err error) {
	if len(text) > maxFilter || !utf8.ValidString(text) {
		return f, status.Errorf(codes.InvalidArgument, "filter is longer than %d bytes or not UTF-8", maxFilter)
	}
	f.Text, f.Node = text, text
	if namespace, rest, ok := strings.Cut(text, "/"); ok {
		f.Namespace = namespace
		f.Service, f.Node, _ = strings.Cut(rest, "/")
	}
	if a, err := netip.ParseAddr(f.Node); err == nil {
		f.Node, f.Address = "", a.Unmap().WithZone("")
	}
	return f, nil
}

// ByNode reports whether the filter selects a single node or address.
func (f *Filter) ByNode() bool { return f.Node != "" || f.Address.IsValid() }

// Detailed reports whether what the filter selects is shown in full.
func (f *Filter) Detailed() bool { return f.Service != "" || f.ByNode() }

// SelectsService reports whether the filter selects a Service, by its namespace/name, whatever its nodes.
func (f *Filter) SelectsService(key string) bool {
	namespace, name, _ := strings.Cut(key, "/")
	return (f.Namespace == "" || f.Namespace == namespace) && (f.Service == "" || f.Service == name)
}

// maxPages limits the pages that Get reads.
const maxPages = 20

// Get requests the report of a component: its first pages in one.
func Get(ctx context.Context, component string, conn grpc.ClientConnInterface, filter string) (Report, error) {
	request := &reportv1.GetReportRequest{Filter: filter}
	if component == Inventory {
		client := inventoryv1.NewInventoryReportServiceClient(conn)
		all, err := client.GetReport(ctx, request)
		for pages := 1; err == nil && all.GetNextPageToken() != "" && pages < maxPages; pages++ {
			var page *inventoryv1.InventoryReport
			request.PageToken = all.GetNextPageToken()
			page, err = client.GetReport(ctx, request)
			all.Nodes, all.Services = append(all.GetNodes(), page.GetNodes()...), append(all.GetServices(), page.GetServices()...)
			all.NextPageToken = page.GetNextPageToken()
		}
		return all, err
	}
	client := writerv1.NewWriterReportServiceClient(conn)
	all, err := client.GetReport(ctx, request)
	for pages := 1; err == nil && all.GetNextPageToken() != "" && pages < maxPages; pages++ {
		var page *writerv1.WriterReport
		request.PageToken = all.GetNextPageToken()
		page, err = client.GetReport(ctx, request)
		all.Services, all.NextPageToken = append(all.GetServices(), page.GetServices()...), page.GetNextPageToken()
	}
	return all, err
}

// ErrProblems is the error of a command that has printed a report with problems.
var ErrProblems = errors.New("problems found")

// JSON is a report that is encoded as protojson does, without what is not set.
type JSON struct{ Report }

// MarshalJSON encodes the report.
func (j JSON) MarshalJSON() ([]byte, error) { return protojson.Marshal(j.Report) }

// view is what the templates show.
type view struct {
	Report

	Inventory *inventoryv1.InventoryReport // or
	Writer    *writerv1.WriterReport
}

// newView returns a view of a copy of a report, because its texts may come from anywhere.
func newView(r Report) *view {
	v := &view{Report: proto.CloneOf(r)}
	clean(v.ProtoReflect())
	v.Inventory, _ = v.Report.(*inventoryv1.InventoryReport)
	v.Writer, _ = v.Report.(*writerv1.WriterReport)
	sortWorstFirst(v.Inventory.GetNodes())
	sortWorstFirst(v.Writer.GetServices())
	for _, s := range v.Writer.GetServices() {
		sortWorstFirst(s.GetAddresses())
	}
	return v
}

func sortWorstFirst[T interface{ GetProblem() *reportv1.Problem }](all []T) {
	slices.SortStableFunc(all, func(a, b T) int { return cmp.Compare(b.GetProblem().GetLevel(), a.GetProblem().GetLevel()) })
}

// Component is the name of the component.
func (v *view) Component() string {
	if v.Inventory != nil {
		return Inventory
	}
	return Writer
}

// Level is that of the most severe problem. A note is none.
func (v *view) Level() reportv1.Level {
	if IsHealthy(v.GetProblems()) {
		return reportv1.Level_LEVEL_UNSPECIFIED
	}
	return Worst(v.GetProblems()).GetLevel()
}

// Headline says how many problems there are.
func (v *view) Headline() string {
	problems := int(v.GetProblemsOmitted())
	for _, p := range v.GetProblems() {
		if p.GetLevel() > reportv1.Level_LEVEL_NOTE {
			problems++
		}
	}
	switch {
	case v.Level() == reportv1.Level_LEVEL_CANNOT_SERVE:
		return "Cannot serve: " + display.Count(problems, "problem.", "problems.")
	case problems > 0:
		return display.Count(problems, "problem.", "problems.")
	default:
		return "Healthy."
	}
}

// Detailed reports whether nodes or Services are shown in full.
func (v *view) Detailed() bool {
	for _, n := range v.Inventory.GetNodes() {
		if n.GetStateReason() != "" || n.GetMatch() != "" {
			return true
		}
	}
	for _, s := range v.Writer.GetServices() {
		if len(s.GetSources()) > 0 || len(s.GetAddresses()) > 0 || len(s.GetPlanNotes()) > 0 {
			return true
		}
	}
	return false
}

// Advice says how to fix the nth problem, unless the next one has the same reason.
func (v *view) Advice(nth int) string {
	all := v.GetProblems()
	if nth+1 < len(all) && all[nth+1].GetReason() == all[nth].GetReason() {
		return ""
	}
	return all[nth].GetAdvice()
}

// maxText limits each text of a report, in bytes.
const maxText = 1024

// clean replaces the control characters in all texts of a message, and truncates them.
func clean(m protoreflect.Message) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if !field.IsList() {
			m.Set(field, cleanValue(field, value))
			return true
		}
		for list, i := value.List(), 0; i < list.Len(); i++ {
			list.Set(i, cleanValue(field, list.Get(i)))
		}
		return true
	})
}

func cleanValue(field protoreflect.FieldDescriptor, value protoreflect.Value) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(display.Truncate(display.Sanitize(value.String()), maxText))
	case protoreflect.MessageKind:
		clean(value.Message())
	}
	return value
}

// funcs are what both templates call.
var funcs = map[string]any{
	"age":        func(d *durationpb.Duration) string { return duration.HumanDuration(max(d.AsDuration(), 0)) },
	"conditions": describeConditions,
	"join":       strings.Join,
	"label":      label,
	"time":       func(t *timestamppb.Timestamp) string { return t.AsTime().Format("2006-01-02 15:04:05 UTC") },
	"word":       Word,
}

// label marks what has a problem of this level.
func label(l reportv1.Level) string {
	return [...]string{"OK", "NOTE", "WARN", "ERROR", "ERROR"}[min(max(l, 0), reportv1.Level_LEVEL_CANNOT_SERVE)]
}

// Word returns a value of an enum as people write it: NODE_STATE_NOT_READY is "not ready".
func Word(value any) string {
	text := fmt.Sprint(value)
	if _, after, found := strings.Cut(text, "_STATE_"); found {
		text = after
	}
	return strings.ToLower(strings.ReplaceAll(text, "_", " "))
}

func describeConditions(b *writerv1.Backend) string {
	if b == nil {
		return "not listed"
	}
	return display.EndpointConditions(b.GetReady(), b.GetServing(), b.GetTerminating())
}

// IsEmpty reports whether a report has neither a node nor a Service.
func IsEmpty(r Report) bool {
	switch r := r.(type) {
	case *inventoryv1.InventoryReport:
		return len(r.GetNodes())+len(r.GetServices()) == 0
	case *writerv1.WriterReport:
		return len(r.GetServices()) == 0
	default:
		return true
	}
}
