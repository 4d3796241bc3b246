// The index of all ops. A new op: its file, its line here and in table.cc, its function in
// graph/ops.h.
#pragma once

#include <span>

#include "graph/value.h"

namespace ulmus::graph {

extern const OpDef kAbs;
extern const OpDef kAdd;
extern const OpDef kAllGather;
extern const OpDef kAllReduce;
extern const OpDef kAllToAll;
extern const OpDef kAnd;
extern const OpDef kAxisIndex;
extern const OpDef kBitcastConvert;
extern const OpDef kBroadcastInDim;
extern const OpDef kCall;
extern const OpDef kCeil;
extern const OpDef kCheckpointName;
extern const OpDef kCollectivePermute;
extern const OpDef kCompare;
extern const OpDef kConcatenate;
extern const OpDef kCond;
extern const OpDef kConstant;
extern const OpDef kConvert;
extern const OpDef kCos;
extern const OpDef kCumSum;
extern const OpDef kCustomGradient;
extern const OpDef kDiv;
extern const OpDef kDotGeneral;
extern const OpDef kDynamicSlice;
extern const OpDef kDynamicUpdateSlice;
extern const OpDef kErf;
extern const OpDef kErfInv;
extern const OpDef kExp;
extern const OpDef kExpm1;
extern const OpDef kFloor;
extern const OpDef kIota;
extern const OpDef kIsFinite;
extern const OpDef kKernelCall;
extern const OpDef kLog;
extern const OpDef kLog1p;
extern const OpDef kLogistic;
extern const OpDef kManual;
extern const OpDef kMax;
extern const OpDef kMin;
extern const OpDef kMul;
extern const OpDef kNeg;
extern const OpDef kNot;
extern const OpDef kOptimizationBarrier;
extern const OpDef kOr;
extern const OpDef kPad;
extern const OpDef kParameter;
extern const OpDef kPow;
extern const OpDef kReduceAnd;
extern const OpDef kReduceMax;
extern const OpDef kReduceMin;
extern const OpDef kReduceOr;
extern const OpDef kReduceScatter;
extern const OpDef kReduceSum;
extern const OpDef kRem;
extern const OpDef kRemat;
extern const OpDef kReshape;
extern const OpDef kReverse;
extern const OpDef kRngBits;
extern const OpDef kRoundNearestEven;
extern const OpDef kRsqrt;
extern const OpDef kScan;
extern const OpDef kScatterAdd;
extern const OpDef kSelect;
extern const OpDef kShardingConstraint;
extern const OpDef kShiftLeft;
extern const OpDef kShiftRightLogical;
extern const OpDef kSign;
extern const OpDef kSin;
extern const OpDef kSlice;
extern const OpDef kSqrt;
extern const OpDef kStopGradient;
extern const OpDef kSub;
extern const OpDef kTake;
extern const OpDef kTanh;
extern const OpDef kTopK;
extern const OpDef kTranspose;
extern const OpDef kWhile;
extern const OpDef kXor;

// Every op but kParameter, for tests that hold for all of them.
std::span<const OpDef* const> AllOps();

}  // namespace ulmus::graph
