// What the worker needs in a storage account, which may be that of main.bicep: a module of worker.bicep.

@description('Name of the storage account.')
param accountName string

@description('Queues of the app; each gets a poison queue.')
param queues string[]

@description('Resource id of the identity of the worker.')
param identityId string

@description('Object id of the identity of the worker.')
param identityPrincipalId string

@description('Object id of who sends and operates; empty: nobody gets a role here.')
param operatorPrincipalId string

@description('Kind of operatorPrincipalId.')
param operatorPrincipalType string

resource account 'Microsoft.Storage/storageAccounts@2026-04-01' existing = {
  name: accountName
}

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2026-04-01' existing = {
  parent: account
  name: 'default'
}

@description('All queues.')
var allQueues = concat(queues, map(queues, queueName => '${queueName}-poison'))

resource queue 'Microsoft.Storage/storageAccounts/queueServices/queues@2026-04-01' = [for queueName in allQueues: {
  parent: queueService
  name: queueName
}]

resource tableService 'Microsoft.Storage/storageAccounts/tableServices@2026-04-01' existing = {
  parent: account
  name: 'default'
}

@description('Tables of the app.')
var tables = ['asynccallerscheduled', 'asynccallerrun', 'asynccallerapp', 'asynccallersight']

resource table 'Microsoft.Storage/storageAccounts/tableServices/tables@2026-04-01' = [for tableName in tables: {
  parent: tableService
  name: tableName
}]

@description('Storage Queue Data Contributor and Storage Table Data Contributor. The worker has no blobs.')
var roles = ['974c5e8b-45b9-4653-ba55-5f855dd0fb88', '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3']

resource workerRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for role in roles: {
  scope: account
  name: guid(account.id, identityId, role)
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
    principalId: identityPrincipalId
    principalType: 'ServicePrincipal'
  }
}]

// The names are those of main.bicep, because Azure refuses a second assignment of a role.
resource operatorRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in roles: if (!empty(operatorPrincipalId)) {
    scope: account
    name: guid(account.id, operatorPrincipalId, role)
    properties: {
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
      principalId: operatorPrincipalId
      principalType: operatorPrincipalType
    }
  }
]

@description('Accounts that were never closed may lack this member.')
var publicAccess = account.properties.?publicNetworkAccess ?? 'Enabled'

@description('Name of the storage account, for a worker whose scaler can reach it.')
output openAccountName string = publicAccess == 'Enabled' && account.properties.?networkAcls.?defaultAction != 'Deny'
  ? account.name
  : fail('the storage account is closed: it is not known whether the scaler of Container Apps reaches it')
