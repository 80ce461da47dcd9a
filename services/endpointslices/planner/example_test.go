package planner_test

import (
	"context"
	"fmt"
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/slicefeed/slicefeed/services/endpointslices/planner"
	"k8s.io/utils/ptr"
)

// A database outside the cluster, a primary and a standby, behind a Service without a selector. Only
// changes are written.
func Example() {
	client := fake.NewClientset() // or kubernetes.NewForConfig(…)
	database := planner.Desired{
		Namespace: "shop",
		Service:   "database",
		Owner:     metav1.OwnerReference{APIVersion: "v1", Kind: "Service", Name: "database", UID: "the Service's UID"},
		ManagedBy: "database-endpoints.example.org",
		FirstName: "database",
		Families:  []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4},
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("postgres"), Port: ptr.To(int32(5432))}},
	}
	primary, standby := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11")

	for _, serving := range []netip.Addr{primary, primary, standby} {
		database.Endpoints = nil
		for _, addr := range []netip.Addr{primary, standby} {
			up := addr == serving
			database.Endpoints = append(database.Endpoints, planner.Endpoint{Address: addr, Ready: up, Serving: up})
		}
		plan, err := sync(context.Background(), client, database)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s serves: %d created, %d updated, %d deleted\n", serving, len(plan.Create), len(plan.Update), len(plan.Delete))
	}
	// Output:
	// 192.0.2.10 serves: 1 created, 0 updated, 0 deleted
	// 192.0.2.10 serves: 0 created, 0 updated, 0 deleted
	// 192.0.2.11 serves: 0 created, 1 updated, 0 deleted
}

// sync applies the plan for the desired endpoints. Call it again after an error, including a conflict: it
// computes a new plan from the current slices.
func sync(ctx context.Context, client kubernetes.Interface, desired planner.Desired) (planner.Plan, error) {
	api := client.DiscoveryV1().EndpointSlices(desired.Namespace)
	list, err := api.List(ctx, metav1.ListOptions{}) // of the whole namespace, to avoid the names of foreign slices
	if err != nil {
		return planner.Plan{}, err
	}
	existing := make([]*discoveryv1.EndpointSlice, len(list.Items))
	for i := range list.Items {
		existing[i] = &list.Items[i]
	}
	plan := planner.Compute(desired, existing)
	for _, slice := range plan.Create {
		if _, err := api.Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			return plan, err
		}
	}
	for _, slice := range plan.Update {
		if _, err := api.Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
			return plan, err
		}
	}
	for _, slice := range plan.Delete {
		as := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &slice.UID, ResourceVersion: &slice.ResourceVersion}}
		if err := api.Delete(ctx, slice.Name, as); err != nil {
			return plan, err
		}
	}
	return plan, nil
}
