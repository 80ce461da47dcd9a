package skew

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
	"github.com/slicefeed/slicefeed/services/writer/endpoints"
	"github.com/slicefeed/slicefeed/services/writer/endpointserver"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
)

// writerQuestions are ways in which a question of people and its answer differ between versions.
var writerQuestions = []struct {
	name              string
	requests, answers Alter
	lost              func(*writerv1.ListTargetDetailsResponse, *writerv1.ExplainEndpointResponse)
}{
	{"both ends newer", Alter{Unknown: true}, Alter{Unknown: true}, nil},
	{
		"a state of targets that nobody knows",
		Alter{},
		Alter{Enums: targetStates(99)},
		func(l *writerv1.ListTargetDetailsResponse, e *writerv1.ExplainEndpointResponse) {
			l.GetTargets()[0].Target.Target.State, e.Target.State = 99, 99
		},
	},
	{
		"a verdict that nobody knows",
		Alter{},
		Alter{Enums: map[protoreflect.FullName]protoreflect.EnumNumber{"slicefeed.writer.v1.Verdict": 99}},
		func(_ *writerv1.ListTargetDetailsResponse, e *writerv1.ExplainEndpointResponse) { e.Verdict = 99 },
	},
	{
		"a writer that says what is, and not why",
		Alter{},
		Alter{Without: []protoreflect.FullName{
			"slicefeed.writer.v1.TargetDetails.guards", "slicefeed.writer.v1.ExplainEndpointResponse.guard",
			"slicefeed.writer.v1.ExplainEndpointResponse.rule", "slicefeed.writer.v1.ExplainEndpointResponse.reason",
			"slicefeed.writer.v1.ExplainEndpointResponse.conclusion", "slicefeed.writer.v1.ExplainEndpointResponse.advice",
			"slicefeed.writer.v1.ExplainEndpointResponse.steps",
		}},
		func(l *writerv1.ListTargetDetailsResponse, e *writerv1.ExplainEndpointResponse) {
			l.GetTargets()[0].Guards = nil
			e.Guard, e.Rule, e.Reason, e.Conclusion, e.Advice, e.Steps = nil, "", "", "", "", nil
		},
	},
}

func TestWhatAWriterIsAskedOnceIsAnsweredWhateverTheVersions(t *testing.T) {
	for _, row := range writerQuestions {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				board := endpoints.NewStore("life")
				shop := target("shop", "10.0.0.1", "10.0.0.2")
				for i := range shop.Decision.Endpoints {
					e := &shop.Decision.Endpoints[i]
					e.Verdict, e.Rule, e.Reason = verdict.Hold, verdict.RuleShrink, "source default: absent"
				}
				shop.Decision.Guards = []verdict.Guard{{Rule: verdict.RuleShrink, Source: "default", Held: 2, Message: "Two stay for now."}}
				board.Put(shop)
				board.MarkSynced()
				server := endpointserver.New(endpointserver.Config{
					Store: board, Health: health.NewServer(), Metrics: endpointserver.NewMetrics(prometheus.NewRegistry(), board),
					Identify: func(context.Context) (string, error) { return "person", nil },
				})
				conn := host(t, server.Register)
				between := NewBetween(conn)
				between.Alter(row.requests, row.answers)
				altered := host(t, nil, between.Options()...)

				list, explanation := asked(t, conn)
				if len(list.GetTargets()) != 1 || explanation.GetVerdict() != writerv1.Verdict_VERDICT_HOLD ||
					explanation.GetConclusion() == "" {
					t.Fatalf("the writer says %v and %v", list, explanation)
				}
				if row.lost != nil {
					row.lost(list, explanation)
				}
				gotList, gotExplanation := asked(t, altered)
				if !proto.Equal(list, known(t, gotList)) {
					t.Errorf("the list is %v, want %v", gotList, list)
				}
				if !proto.Equal(explanation, known(t, gotExplanation)) {
					t.Errorf("the explanation is %v, want %v", gotExplanation, explanation)
				}
				if between.Altered() == 0 {
					t.Error("no message was altered: this row tests nothing")
				}
				server.Stop()
			})
		})
	}
}

func asked(t *testing.T, conn grpc.ClientConnInterface) (*writerv1.ListTargetDetailsResponse, *writerv1.ExplainEndpointResponse) {
	t.Helper()
	client := writerv1.NewWriterOperatorServiceClient(conn)
	list, err := client.ListTargetDetails(
		t.Context(),
		&writerv1.ListTargetDetailsRequest{Services: []*writerv1.ServiceSelector{{Namespace: "web", Service: "shop"}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	explanation, err := client.ExplainEndpoint(
		t.Context(),
		&writerv1.ExplainEndpointRequest{Namespace: "web", Service: "shop", Address: "10.0.0.1"},
	)
	if err != nil {
		t.Fatal(err)
	}
	return list, explanation
}
