// Package cpu has the kernels for a CPU, in f32. Sums run in one fixed order
// per result element, so a row's result does not depend on what else is in the
// batch.
package cpu

import "github.com/krait-ml/krait/kernels"

// Kernels is the set.
var Kernels = kernels.Set{
	"embedding":   {Units: kernels.RowUnits, Run: embedding},
	"select_rows": {Units: kernels.RowUnits, Run: selectRows},

	"matmul": {Units: matmulUnits, Run: matmul},
	"bias":   {Units: kernels.RowUnits, Run: bias},
	"scale":  {Units: kernels.RowUnits, Run: scale},
	"add":    {Units: kernels.RowUnits, Run: add},
	"mul":    {Units: kernels.RowUnits, Run: mul},

	"times":     {Units: kernels.RowUnits, Run: times},
	"head_down": {Units: kernels.RowUnits, Run: headDown},
	"head_up":   {Units: kernels.RowUnits, Run: headUp},
	"concat":    {Units: kernels.RowUnits, Run: concat},

	"silu":      {Units: kernels.RowUnits, Run: perRow(silu)},
	"gelu":      {Units: kernels.RowUnits, Run: perRow(gelu)},
	"gelu_tanh": {Units: kernels.RowUnits, Run: perRow(geluTanh)},
	"relu":      {Units: kernels.RowUnits, Run: perRow(relu)},
	"softplus":  {Units: kernels.RowUnits, Run: perRow(softplus)},
	"neg_exp":   {Units: kernels.RowUnits, Run: perRow(negExp)},
	"clamp":     {Units: kernels.RowUnits, Run: clamp},

	"rmsnorm":       {Units: kernels.RowUnits, Run: rmsnorm},
	"unit_rmsnorm":  {Units: kernels.RowUnits, Run: unitRMSNorm},
	"group_rmsnorm": {Units: kernels.RowUnits, Run: groupRMSNorm},

	"sumsq":     {Units: kernels.RowUnits, Run: sumsq},
	"rms_scale": {Units: kernels.RowUnits, Run: rmsScale},
	"rms_rows":  {Units: kernels.RowUnits, Run: rmsRows},

	"group_sumsq":     {Units: kernels.RowUnits, Run: groupSumsq},
	"group_rms_scale": {Units: kernels.RowUnits, Run: groupRMSScale},

	"rotary":    {Units: rotaryUnits, Run: rotary},
	"attention": {Units: attentionUnits, Run: attention},
	"router":    {Units: kernels.RowUnits, Run: router},
	"experts":   {Units: kernels.RowUnits, Run: experts},

	"quantize":   {Units: kernels.RowUnits, Run: convert},
	"dequantize": {Units: kernels.RowUnits, Run: convert},

	"conv1d":         {Units: convUnits, Run: conv1d},
	"selective_scan": {Units: scanUnits, Run: selectiveScan},
	"ssd_scan":       {Units: ssdUnits, Run: ssdScan},

	"add_rmsnorm":   {Units: kernels.RowUnits, Run: addRMSNorm},
	"conv1d_silu":   {Units: convSiluUnits, Run: convSilu},
	"silu_mul":      {Units: kernels.RowUnits, Run: siluMul},
	"bias_softplus": {Units: kernels.RowUnits, Run: biasSoftplus},
	"add_scaled":    {Units: kernels.RowUnits, Run: addScaled},
}
