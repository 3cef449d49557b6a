// Runs the scenario of scenario.json in litesvm and writes the results to vectors.json:
//
//   npm install litesvm@1.5.0 (in some folder outside of the tree)
//   NODE_PATH=<that folder>/node_modules node vectors.js [scenario.json vectors.json]
//
// This command writes scenario.json: go test ./chain/localnet -run Scenario -update
const fs = require('fs'), path = require('path'), crypto = require('crypto');
const I = require(path.join(process.env.NODE_PATH, 'litesvm/dist/internal.js'));
const [from, to] = process.argv.length > 3 ? process.argv.slice(2) : ['scenario.json', 'vectors.json'].map(name => path.join(__dirname, name));
const scenario = JSON.parse(fs.readFileSync(from));
const svm = new I.LiteSvm();
svm.setBlockhashCheck(false);
svm.setTransactionHistory(10000n);

const transactionErrors = 'AccountInUse AccountLoadedTwice AccountNotFound ProgramAccountNotFound InsufficientFundsForFee InvalidAccountForFee AlreadyProcessed BlockhashNotFound CallChainTooDeep MissingSignatureForFee InvalidAccountIndex SignatureFailure InvalidProgramForExecution SanitizeFailure ClusterMaintenance AccountBorrowOutstanding WouldExceedMaxBlockCostLimit UnsupportedVersion InvalidWritableAccount WouldExceedMaxAccountCostLimit WouldExceedAccountDataBlockLimit TooManyAccountLocks AddressLookupTableNotFound InvalidAddressLookupTableOwner InvalidAddressLookupTableData InvalidAddressLookupTableIndex InvalidRentPayingAccount WouldExceedMaxVoteCostLimit WouldExceedAccountDataTotalLimit MaxLoadedAccountsDataSizeExceeded ResanitizationNeeded InvalidLoadedAccountsDataSizeLimit UnbalancedTransaction ProgramCacheHitMaxLimit CommitCancelled'.split(' ');
const instructionErrors = 'GenericError InvalidArgument InvalidInstructionData InvalidAccountData AccountDataTooSmall InsufficientFunds IncorrectProgramId MissingRequiredSignature AccountAlreadyInitialized UninitializedAccount UnbalancedInstruction ModifiedProgramId ExternalAccountLamportSpend ExternalAccountDataModified ReadonlyLamportChange ReadonlyDataModified DuplicateAccountIndex ExecutableModified RentEpochModified NotEnoughAccountKeys AccountDataSizeChanged AccountNotExecutable AccountBorrowFailed AccountBorrowOutstanding DuplicateAccountOutOfSync InvalidError ExecutableDataModified ExecutableLamportChange ExecutableAccountNotRentExempt UnsupportedProgramId CallDepth MissingAccount ReentrancyNotAllowed MaxSeedLengthExceeded InvalidSeeds InvalidRealloc ComputationalBudgetExceeded PrivilegeEscalation ProgramEnvironmentSetupFailure ProgramFailedToComplete ProgramFailedToCompile Immutable IncorrectAuthority AccountNotRentExempt InvalidAccountOwner ArithmeticOverflow UnsupportedSysvar IllegalOwner MaxAccountsDataAllocationsExceeded MaxAccountsExceeded MaxInstructionTraceLengthExceeded BuiltinProgramsMustConsumeComputeUnits BorshIoError'.split(' ');

function errorOf(e) {
  if (typeof e === 'number') return transactionErrors[e];
  if (e.err) {
    const x = e.err();
    return { InstructionError: [e.index, typeof x === 'number' ? instructionErrors[x] : { Custom: x.code }] };
  }
  if (e.accountIndex !== undefined) return { InsufficientFundsForRent: { account_index: e.accountIndex } };
  if (e.index !== undefined) return { DuplicateInstruction: e.index };
  return String(e);
}

function setSlot(s) {
  const clock = svm.getClock();
  clock.slot = BigInt(s.slot); clock.unixTimestamp = BigInt(s.time);
  clock.epoch = 0n; clock.epochStartTimestamp = BigInt(scenario.start); clock.leaderScheduleEpoch = 1n;
  svm.setClock(clock);
  svm.setSlotHashes(s.hashes.map(h => ({ slot: BigInt(h.slot), hash: h.hash })));
}

const hex = b => Buffer.from(b).toString('hex');
function account(key) {
  const a = svm.getAccount(Buffer.from(key, 'hex'));
  if (!a || (a.lamports() === 0n && a.data().length === 0)) return null;
  return { lamports: Number(a.lamports()), owner: hex(a.owner()), executable: a.executable(), size: a.data().length,
    sha256: crypto.createHash('sha256').update(a.data()).digest('hex') };
}

for (const d of scenario.airdrops) svm.airdrop(Buffer.from(d.key, 'hex'), BigInt(d.lamports));
const vectors = [];
for (const step of scenario.steps) {
  if (step.slot) { setSlot(step.slot); if (!step.raw) continue; }
  const r = svm.sendLegacyTransaction(Buffer.from(step.raw, 'base64'));
  const failed = r instanceof I.FailedTransactionMetadata, meta = failed ? r.meta() : r;
  const back = Buffer.from(meta.returnData().data());
  vectors.push({ name: step.name, err: failed ? errorOf(r.err()) : null, units: Number(meta.computeUnitsConsumed()), logs: meta.logs(),
    return: back.toString('hex'), accounts: Object.fromEntries(step.keys.map(k => [k, account(k)])) });
}
fs.writeFileSync(to, '[\n' + vectors.map(v => JSON.stringify(v)).join(',\n') + '\n]\n');
console.log(vectors.length + ' transactions');
