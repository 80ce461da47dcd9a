package nodeserver

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/internal/display"
	"github.com/slicefeed/slicefeed/services/internal/page"
	"github.com/slicefeed/slicefeed/services/inventory/feed"
	"github.com/slicefeed/slicefeed/services/inventory/roster"
	"github.com/slicefeed/slicefeed/services/inventory/source"
)

// RegisterLocalOperator registers InventoryOperatorService for a listener that only operators reach, whose callers need
// no certificate.
func (s *Server) RegisterLocalOperator(to grpc.ServiceRegistrar) {
	inventoryv1.RegisterInventoryOperatorServiceServer(to, localOperator{server: s})
}

type localOperator struct {
	inventoryv1.UnimplementedInventoryOperatorServiceServer

	server *Server
}

// localClient sees all nodes of all sets.
var localClient = Client{Operator: true, AllowsService: func(string) bool { return true }}

func (o localOperator) ListNodeDetails(
	_ context.Context,
	req *inventoryv1.ListNodeDetailsRequest,
) (*inventoryv1.ListNodeDetailsResponse, error) {
	return o.server.listNodeDetails(localClient, req)
}

func (o localOperator) ExplainNodes(_ context.Context, req *inventoryv1.ExplainNodesRequest) (*inventoryv1.ExplainNodesResponse, error) {
	return o.server.explainNodes(localClient, req)
}

// ListNodeDetails returns a page of all nodes of the source, published or omitted.
func (s *Server) ListNodeDetails(
	ctx context.Context,
	req *inventoryv1.ListNodeDetailsRequest,
) (*inventoryv1.ListNodeDetailsResponse, error) {
	client, err := s.identify(ctx)
	if err != nil {
		return nil, err
	}
	return s.listNodeDetails(client, req)
}

func (s *Server) listNodeDetails(client Client, req *inventoryv1.ListNodeDetailsRequest) (*inventoryv1.ListNodeDetailsResponse, error) {
	if err := checkNames(req.GetNames(), 0, maxListedNames); err != nil {
		return nil, err
	}
	set, release, err := s.cfg.Sets.Acquire(client, req.GetService())
	if err != nil {
		return nil, err
	}
	defer release()
	current, now := set.Nodes.Snapshot(), time.Now()
	all := selectNames(set.listDetails(&current), req.GetNames(), detailsName)
	nodes, next, err := page.Cut(req, all, detailsName, func(d nodeDetails) *inventoryv1.NodeDetails { return d.encode(now) })
	if err != nil {
		return nil, err
	}
	response := &inventoryv1.ListNodeDetailsResponse{Status: encodeStatus(current.Status, now), Nodes: nodes, NextPageToken: next}
	if current.Synced {
		response.Cursor = encodeCursor(&current)
	}
	return response, nil
}

// nodeDetails is a node of the source. It is either published or omitted.
type nodeDetails struct {
	name, providerID, serverID string
	published                  *feed.Entry
	reason                     inventoryv1.OmissionReason
	advice                     string
}

func detailsName(d nodeDetails) string { return d.name }

func (d nodeDetails) encode(now time.Time) *inventoryv1.NodeDetails {
	// A name that is too long can be the reason why a node is omitted.
	encoded := &inventoryv1.NodeDetails{
		Name: display.Truncate(d.name, contract.MaxNameLength), ProviderId: truncate(d.providerID), ServerId: truncate(d.serverID),
	}
	if d.published != nil {
		encoded.Result = &inventoryv1.NodeDetails_Published{Published: encodeNode(d.published, now)}
	} else {
		encoded.Result = &inventoryv1.NodeDetails_Omitted{Omitted: &inventoryv1.Omission{Reason: d.reason, Advice: truncate(d.advice)}}
	}
	return encoded
}

// listDetails returns the published nodes and those that the roster omits, sorted by name.
func (s *Set) listDetails(current *feed.Update) []nodeDetails {
	var all []nodeDetails
	for _, e := range current.Upserts {
		all = append(all, nodeDetails{name: e.Node.Name, providerID: e.Node.ProviderID, serverID: e.Node.ServerID, published: e})
	}
	for _, o := range s.Omitted() {
		all = append(
			all,
			nodeDetails{name: o.Name, providerID: o.ProviderID, reason: inventoryv1.OmissionReason(o.Reason), advice: o.Advice},
		)
	}
	slices.SortFunc(all, func(a, b nodeDetails) int { return cmp.Compare(a.name, b.name) })
	return all
}

// ExplainNodes returns the roster's explanation for each name.
func (s *Server) ExplainNodes(ctx context.Context, req *inventoryv1.ExplainNodesRequest) (*inventoryv1.ExplainNodesResponse, error) {
	client, err := s.identify(ctx)
	if err != nil {
		return nil, err
	}
	return s.explainNodes(client, req)
}

func (s *Server) explainNodes(client Client, req *inventoryv1.ExplainNodesRequest) (*inventoryv1.ExplainNodesResponse, error) {
	if err := checkNames(req.GetNames(), 1, maxExplainedNames); err != nil {
		return nil, err
	}
	set, release, err := s.cfg.Sets.Acquire(client, req.GetService())
	if err != nil {
		return nil, err
	}
	defer release()
	response := &inventoryv1.ExplainNodesResponse{}
	for _, name := range req.GetNames() {
		explanation, _ := set.Explain(name)
		response.Explanations = append(response.Explanations, EncodeExplanation(name, &explanation))
	}
	return response, nil
}

// EncodeExplanation encodes the explanation of a node by its name.
func EncodeExplanation(name string, e *roster.Explanation) *inventoryv1.NodeExplanation {
	encoded := &inventoryv1.NodeExplanation{Name: name, Conclusion: truncate(e.Conclusion)}
	for _, step := range e.Steps {
		encoded.Steps = append(encoded.Steps, encodeStep(step))
	}
	return encoded
}

var stages = map[string]inventoryv1.ExplanationStage{
	source.StageSource:      inventoryv1.ExplanationStage_EXPLANATION_STAGE_SOURCE,
	source.StageEligibility: inventoryv1.ExplanationStage_EXPLANATION_STAGE_ELIGIBILITY,
	source.StageState:       inventoryv1.ExplanationStage_EXPLANATION_STAGE_STATE,
	source.StageMatch:       inventoryv1.ExplanationStage_EXPLANATION_STAGE_MATCH,
	source.StageAddress:     inventoryv1.ExplanationStage_EXPLANATION_STAGE_ADDRESS,
	source.StageClaim:       inventoryv1.ExplanationStage_EXPLANATION_STAGE_CLAIM,
}

var stepResults = map[source.StepResult]inventoryv1.StepResult{
	source.Note:    inventoryv1.StepResult_STEP_RESULT_NOTE,
	source.Passed:  inventoryv1.StepResult_STEP_RESULT_PASSED,
	source.Failed:  inventoryv1.StepResult_STEP_RESULT_FAILED,
	source.Skipped: inventoryv1.StepResult_STEP_RESULT_SKIPPED,
}

func encodeStep(s source.Step) *inventoryv1.ExplanationStep {
	return &inventoryv1.ExplanationStep{
		Stage: stages[s.Stage], Question: truncate(s.Question), Result: stepResults[s.Result], Detail: truncate(s.Detail),
	}
}

func truncate(text string) string { return display.Truncate(text, contract.MaxTextLength) }
