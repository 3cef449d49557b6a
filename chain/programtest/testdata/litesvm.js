// Executes the steps that TestLiteSVM recorded in litesvm, and reports the differences.
//
//   node litesvm.js <node_modules with litesvm> <program> <its id> <steps, one a line>
const fs = require('fs'), path = require('path'), crypto = require('crypto'), readline = require('readline');
const [modules, program, id, steps] = process.argv.slice(2);
const I = require(path.join(modules, 'litesvm/dist/internal.js'));

// Names of the errors of instructions, in the order of litesvm's numbers.
const names = 'GenericError InvalidArgument InvalidInstructionData InvalidAccountData AccountDataTooSmall InsufficientFunds IncorrectProgramId MissingRequiredSignature AccountAlreadyInitialized UninitializedAccount UnbalancedInstruction ModifiedProgramId ExternalAccountLamportSpend ExternalAccountDataModified ReadonlyLamportChange ReadonlyDataModified DuplicateAccountIndex ExecutableModified RentEpochModified NotEnoughAccountKeys AccountDataSizeChanged AccountNotExecutable AccountBorrowFailed AccountBorrowOutstanding DuplicateAccountOutOfSync InvalidError ExecutableDataModified ExecutableLamportChange ExecutableAccountNotRentExempt UnsupportedProgramId CallDepth MissingAccount ReentrancyNotAllowed MaxSeedLengthExceeded InvalidSeeds InvalidRealloc ComputationalBudgetExceeded PrivilegeEscalation ProgramEnvironmentSetupFailure ProgramFailedToComplete ProgramFailedToCompile Immutable IncorrectAuthority AccountNotRentExempt InvalidAccountOwner ArithmeticOverflow UnsupportedSysvar IllegalOwner MaxAccountsDataAllocationsExceeded MaxAccountsExceeded MaxInstructionTraceLengthExceeded BuiltinProgramsMustConsumeComputeUnits BorshIoError'.split(' ');
const budget = Buffer.from('0306466fe5211732ffecadba72c39be7bc8ce5bbc5f7126b2c439b3a40000000', 'hex'), budgetUnits = 150;
const programID = Buffer.from(id, 'hex'), payer = crypto.createHash('sha256').update('payer').digest();
const sha256 = b => crypto.createHash('sha256').update(b).digest('hex');

const svm = new I.LiteSvm();
svm.setSigverify(false); svm.setBlockhashCheck(false); svm.setTransactionHistory(0n);
svm.addProgramFromFile(programID, program);
svm.airdrop(payer, 10n ** 13n);

function short(n) {
	const bytes = [];
	for (; n > 127; n >>= 7) bytes.push(n & 127 | 128);
	return Buffer.from([...bytes, n]);
}

// transaction orders the keys by their access modes, as a message does.
function transaction(step) {
	const of = new Map();
	for (const a of step.accounts) {
		const known = of.get(a.key) || { key: a.key, signer: false, writable: false };
		of.set(a.key, { key: a.key, signer: known.signer || a.signer, writable: known.writable || a.writable });
	}
	const all = [...of.values()], pick = (s, w) => all.filter(a => a.signer === s && a.writable === w).map(a => a.key);
	const ws = pick(true, true), rs = pick(true, false), wu = pick(false, true), ru = pick(false, false);
	const check = step.check ? [step.check.program] : [];
	const keys = [payer.toString('hex'), ...ws, ...rs, ...wu, ...ru, ...check, id, budget.toString('hex')];
	const signers = 1 + ws.length + rs.length, data = Buffer.from(step.data, 'hex'), limit = Buffer.alloc(5);
	limit[0] = 2; limit.writeUInt32LE(1400000, 1);
	const budgeted = Buffer.concat([Buffer.from([keys.length - 1, 0]), short(5), limit]);
	const own = Buffer.concat([Buffer.from([keys.length - 2]), short(step.accounts.length), Buffer.from(step.accounts.map(a => keys.indexOf(a.key))), short(data.length), data]);
	let instructions = [budgeted, own];
	if (step.check) {
		const proof = Buffer.from(step.check.data, 'hex');
		instructions = [Buffer.concat([Buffer.from([keys.length - 3, 0]), short(proof.length), proof]), own, budgeted];
	}
	const message = Buffer.concat([
		Buffer.from([signers, rs.length, ru.length + 2 + check.length]), short(keys.length), ...keys.map(k => Buffer.from(k, 'hex')), Buffer.alloc(32),
		short(instructions.length), ...instructions,
	]);
	return Buffer.concat([short(signers), Buffer.alloc(64 * signers), message]);
}

function prepare(step) {
	for (const s of step.set || []) {
		const data = Buffer.alloc(s.size);
		for (let i = 0; i < s.parts.length; i += 2) Buffer.from(s.parts[i + 1], 'hex').copy(data, s.parts[i]);
		svm.setAccount(Buffer.from(s.key, 'hex'), new I.Account(10n ** 10n, new Uint8Array(data), Buffer.from(s.owner, 'hex'), false, 0n));
	}
	for (const a of step.accounts) { // other accounts, with enough lamports to exist
		const key = Buffer.from(a.key, 'hex');
		if (a.sha256 && !svm.getAccount(key)) svm.setAccount(key, new I.Account(10n ** 10n, new Uint8Array(0), Buffer.alloc(32), false, 0n));
	}
	const clock = svm.getClock();
	clock.slot = BigInt(step.slot); clock.unixTimestamp = BigInt(step.time);
	svm.setClock(clock);
	if (step.hashes) svm.setSlotHashes(step.hashes.map(h => ({ slot: BigInt(h.slot), hash: h.hash })));
}

let number = 0, different = 0, units = 0;
function perform(step) {
	prepare(step);
	const r = svm.sendLegacyTransaction(transaction(step)), failed = r instanceof I.FailedTransactionMetadata, meta = failed ? r.meta() : r;
	const got = { error: '', code: 0, units: Number(meta.computeUnitsConsumed()) - budgetUnits, logged: [] };
	if (failed) {
		const e = r.err(), x = e.err ? e.err() : e;
		if (typeof x === 'number') got.error = e.err ? names[x] : 'transaction ' + x;
		else { got.error = 'Custom'; got.code = x.code; }
	}
	for (const line of meta.logs()) if (line.startsWith('Program data: ')) got.logged.push(Buffer.from(line.slice(14), 'base64').toString('hex'));
	if (failed) got.logged = [];
	const want = { ...step.want, logged: step.want.logged || [] };
	let problem = JSON.stringify(got) === JSON.stringify(want) ? '' : JSON.stringify(got) + ', want ' + JSON.stringify(want);
	for (const a of step.accounts) {
		if (!a.sha256) continue; // an account of the chain itself
		const account = svm.getAccount(Buffer.from(a.key, 'hex')), data = account ? account.data() : Buffer.alloc(0);
		if (sha256(data) !== a.sha256 && !(data.length === 0 && !failed)) problem += ' account ' + a.key;
	}
	units += got.units;
	if (problem && different++ < 10) console.log('step', number, step.data.slice(0, 40), problem);
}

readline.createInterface({ input: fs.createReadStream(steps) }).on('line', line => {
	number++;
	perform(JSON.parse(line));
}).on('close', () => {
	console.log(number + ' steps, ' + different + ' different, ' + units + ' compute units');
	process.exit(different ? 1 : 0);
});
